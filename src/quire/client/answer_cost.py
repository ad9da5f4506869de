"""The cost of one answer in tokens and seconds, measured by the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from quire.client.chunk import AnswerChunk, TokenUsage


class AnswerCost:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.usage: TokenUsage | None = None  #: reported by the server
        self.finish_reason: str | None = None
        self.num_chunks = 0  #: chunks with tokens, a lower bound of the tokens
        self.first_s: float | None = None  #: from the request to the first token
        self.total_s: float | None = None  #: from the request to the last token

    def watch(self, chunks: Iterable[AnswerChunk]) -> Iterator[AnswerChunk]:
        """Yield the chunks unchanged, and measure them."""
        started = self._clock()
        for chunk in chunks:
            if chunk.is_token:
                self.num_chunks += 1
                self.total_s = self._clock() - started
                if self.first_s is None:
                    self.first_s = self.total_s
            self.usage = chunk.usage or self.usage
            self.finish_reason = chunk.finish_reason or self.finish_reason
            yield chunk

    @property
    def num_tokens(self) -> int:
        return self.usage.completion_tokens if self.usage is not None else self.num_chunks

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding speed, without the first token."""
        if self.first_s is None or self.total_s is None or self.total_s <= self.first_s:
            return None
        return (self.num_tokens - 1) / (self.total_s - self.first_s)

    def __str__(self) -> str:
        parts = []
        if self.usage is not None:
            cached = f" ({self.usage.cached_tokens:,} cached)" if self.usage.cached_tokens else ""
            parts.append(f"{self.usage.prompt_tokens:,} tokens in{cached}")
        about = "" if self.usage is not None else "about "
        parts.append(f"{about}{self.num_tokens:,} out" + (f" ({self.finish_reason})" if self.finish_reason else ""))
        if self.first_s is not None:
            parts.append(f"first after {self.first_s * 1e3:,.0f} ms")
        if self.tokens_per_s is not None:
            parts.append(f"then {self.tokens_per_s:,.1f} tokens/s")
        return ", ".join(parts)
