"""Client errors by kind, so that they can be counted and shown in one line."""

from __future__ import annotations

import json
from typing import Any

import httpx

# The first matching class counts, so subclasses come before their base classes.
_KINDS: tuple[tuple[type[Exception], str, str], ...] = (
    (httpx.ConnectError, "connect", "cannot connect"),
    (httpx.TimeoutException, "timeout", "no answer in time"),
    (httpx.NetworkError, "disconnected", "the connection broke"),
    (httpx.RemoteProtocolError, "disconnected", "the connection broke"),
    (OSError, "connect", "cannot connect"),
)


class RemoteError(RuntimeError):
    """A failed request to a server. `kind` is a word to count by: `connect`, `timeout`, `disconnected`, `http_429` and
    the like, `stream_error` (reported in the stream), `truncated` (ended early), `not_sse` (no stream)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def error_from_exception(error: Exception, url: str) -> RemoteError:
    """Convert an exception of httpx or the operating system."""
    if isinstance(error, RemoteError):
        return error
    for family, kind, words in _KINDS:
        if isinstance(error, family):
            return RemoteError(kind, f"{url}: {words} ({str(error) or type(error).__name__})")
    return RemoteError(type(error).__name__, f"{url}: {type(error).__name__}: {error}")


def error_from_response(status: int, body: bytes, url: str) -> RemoteError:
    """Convert a response other than 200, with the server's message if it has one."""
    try:
        words = error_message(json.loads(body))
    except ValueError:
        words = body[:200].decode(errors="replace").strip()
    return RemoteError(f"http_{status}", f"{url}: HTTP {status}: {words or 'no reason given'}")


def error_message(body: Any) -> str:
    """Extract the message of an error body, in OpenAI's or another common format."""
    found = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail") or found
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)[:500]
