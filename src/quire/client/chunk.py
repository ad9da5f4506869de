"""One piece of an answer, as a stream's event carries it or a model in this process makes it."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from quire.client.errors import RemoteError, error_message


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens of an answer, as the server counts them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None  #: of the prompt, found in a cache; None where the server does not say


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """The growth of the first choice since the last chunk."""

    text: str = ""
    reasoning: str = ""  #: thoughts before the answer, from servers that tell them apart
    is_token: bool = False  #: at least one token came, though its text may be held back
    finish_reason: str | None = None
    usage: TokenUsage | None = None  #: of the whole answer so far


#: An answer as it comes. Closing it ends the request, and frees its blocks.
AnswerStream = Generator[AnswerChunk, None, None]


def read_chunk(data: str) -> AnswerChunk:
    """A chunk from an event's data, or from the body of an answer that came whole.

    Both of OpenAI's endpoints are understood, and what others add to them is left alone.

    Raises:
        RemoteError: the data says that something went wrong, or is no such chunk.
    """
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
        raise RemoteError("not_openai", f"an event is none of OpenAI's: {data[:100]!r}") from None


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
    # A token whose text is not whole yet comes as an empty text; so do the event that only opens the assistant's turn,
    # and the one that only ends it.
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
