"""Client errors by kind, so that they can be counted and shown in one line."""

from __future__ import annotations

import json
from typing import Any


class RemoteError(RuntimeError):
    """A failed request to a server. `kind` is a word to count by: `connect`, `timeout`, `disconnected`, `http_429` and
    the like, `stream_error` (reported in the stream), `truncated` (ended early), `not_sse` (no stream)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def error_from_exception(error: Exception, url: str) -> RemoteError:
    """Convert an exception of httpx or the operating system."""
    import httpx  # takes 0.1 s; a model in this process needs none

    if isinstance(error, RemoteError):
        return error
    kinds = (  # subclasses before their base classes
        (httpx.ConnectError, "connect", "cannot connect"),
        (httpx.TimeoutException, "timeout", "no answer in time"),
        (httpx.NetworkError, "disconnected", "the connection broke"),
        (httpx.RemoteProtocolError, "disconnected", "the connection broke"),
        (OSError, "connect", "cannot connect"),
    )
    for family, kind, words in kinds:
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
