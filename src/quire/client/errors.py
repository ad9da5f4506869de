"""Failures between a client and a server, by kind, so that each can be counted and said in one line."""

from __future__ import annotations

import json
from typing import Any

import httpx

# The first class that fits counts, so a general one stands below its special cases.
_KINDS: tuple[tuple[type[Exception], str, str], ...] = (
    (httpx.ConnectError, "connect", "cannot connect"),
    (httpx.TimeoutException, "timeout", "no answer in time"),
    (httpx.NetworkError, "disconnected", "the connection broke"),
    (httpx.RemoteProtocolError, "disconnected", "the connection broke"),
    (OSError, "connect", "cannot connect"),
)


class RemoteError(RuntimeError):
    """A server did not answer as it should.

    Attributes:
        kind: a short word to count by: `connect`, `timeout`, `disconnected`, `http_429` and the like, `stream_error`
            (the stream said so itself), `truncated` (it ended too early), `not_sse` (what came is no stream).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def of_exception(error: Exception, url: str) -> RemoteError:
    """An exception of httpx, or of the system under it."""
    if isinstance(error, RemoteError):
        return error
    for family, kind, words in _KINDS:
        if isinstance(error, family):
            return RemoteError(kind, f"{url}: {words} ({str(error) or type(error).__name__})")
    return RemoteError(type(error).__name__, f"{url}: {type(error).__name__}: {error}")


def of_response(status: int, body: bytes, url: str) -> RemoteError:
    """An answer that is not 200, in the server's own words where it has some."""
    try:
        words = error_message(json.loads(body))
    except ValueError:
        words = body[:200].decode(errors="replace").strip()
    return RemoteError(f"http_{status}", f"{url}: HTTP {status}: {words or 'no reason given'}")


def error_message(body: Any) -> str:
    """The sentence in an error's body, in OpenAI's form or in another usual one."""
    found = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail") or found
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)[:500]
