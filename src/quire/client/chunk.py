"""Chunks of an answer, parsed from a server's events or produced by a local model."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from quire.client.errors import RemoteError, error_message


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of an answer, as reported by the server."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None  #: prompt tokens found in a cache, if reported


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """The growth of the first choice since the last chunk."""

    text: str = ""
    reasoning: str = ""  #: thoughts before the answer, from servers that separate them
    is_token: bool = False  #: at least one new token, whose text may be held back
    finish_reason: str | None = None
    usage: TokenUsage | None = None  #: cumulative


#: A streamed answer. Closing it aborts the request.
AnswerStream = Generator[AnswerChunk, None, None]


def read_chunk(data: str) -> AnswerChunk:
    """Parse an event's data or a whole response of OpenAI's endpoints, ignoring unknown fields. Raises RemoteError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise RemoteError("not_sse", f"an event is not JSON: {data[:100]!r}") from None
    if not isinstance(body, dict):
        raise RemoteError("not_sse", f"an event is not an object: {data[:100]!r}")
    if body.get("error"):
        raise RemoteError("stream_error", error_message(body))
    try:
        return _read_body(body)
    except (TypeError, AttributeError):
        raise RemoteError("not_openai", f"an event is not in OpenAI's format: {data[:100]!r}") from None


def _read_body(body: dict[str, Any]) -> AnswerChunk:
    usage = _read_usage(body.get("usage"))
    choice = next((c for c in body.get("choices") or () if isinstance(c, dict) and not c.get("index")), None)
    if choice is None:
        return AnswerChunk(usage=usage)
    reason = choice.get("finish_reason")
    said: Any = choice.get("delta") or choice.get("message")
    if isinstance(said, dict):
        text, reasoning = said.get("content"), said.get("reasoning_content") or said.get("reasoning")
    else:
        said, text, reasoning = choice, choice.get("text"), None
    # An empty text is a token with an incomplete character, or an event that only opens or ends the assistant's turn.
    is_token = bool(text or reasoning) or (text is not None and reason is None and "role" not in said)
    for value in (text, reasoning, reason):
        if not isinstance(value, str | None):
            raise TypeError
    return AnswerChunk(text or "", reasoning or "", is_token, reason, usage)


def _read_usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    if not all(isinstance(count, int) and count >= 0 for count in (*counts, cached or 0)):
        raise TypeError
    return TokenUsage(*counts, cached)
