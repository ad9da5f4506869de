"""Predict the latencies of one more request from an engine's reported state.

The engine reports a `Forecast` with its steps (`core/forecaster.py`). Its clients add the requests sent since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import NamedTuple


class Prediction(NamedTuple):
    ttft_s: float
    tpot_s: float
    spread_s: float = 0.0  #: standard deviation of the TTFT, from the ends of other requests


@dataclass(slots=True)
class Forecast:
    """An engine's load and speed. A step takes `decode_s`, plus `token_s` for each of at most `chunk` prompt tokens."""

    time: float = 0.0  #: seconds on the engine's clock
    num_running: int = 0  #: sequences
    num_waiting: int = 0  #: requests
    queued_tokens: float = 0.0  #: tokens computed before a new request's: queued prompts, and the rest of running ones
    free_seats: int = 1  #: free sequences; waiting requests take theirs first
    free_tokens: int = 1 << 62  #: tokens with free KV blocks, likewise; negative if blocks are short
    chunk: int = 512
    decode_s: float = 0.0  #: a decode step of all running and waiting requests, and one more
    token_s: float = 0.0  #: additional seconds of a step per prompt token
    pair_s: float = 0.0  #: additional seconds per pair of a prompt token and an earlier one
    prompt_tokens: float = 0.0  #: computed per request, recent average
    answer_tokens: float = 0.0  #: tokens per answer, recent average
    found_share: float = 0.0  #: share of prompt tokens whose KV was found, recent average
    tokens_per_seq: float = 0.0  #: average KV of a running sequence
    age_s: float = 0.0  #: seconds since `time`
    num_sent: int = 0  #: requests sent since, which the engine has not counted yet
    sent_tokens: float = 0.0  #: prompt tokens of these requests

    def predict(self, num_tokens: int, num_cached: int = 0) -> Prediction:
        """Predict the latencies of a request that is sent now. `num_tokens` of the prompt may be estimated."""
        ttft_s, num_ends = self._first_token(num_tokens, num_cached)
        # Independent ends: the variance of their number is its mean (Poisson).
        spread = sqrt(num_ends) * self.seconds_to_an_end if num_ends else 0.0
        return Prediction(ttft_s, self.tpot_s, spread)

    def predict_ttft(self, num_tokens: int, num_cached: int = 0) -> float:
        """Predict only the TTFT: a router asks every replica for it for every request."""
        return self._first_token(num_tokens, num_cached)[0]

    def _first_token(self, num_tokens: int, num_cached: int) -> tuple[float, float]:
        """Return the TTFT, and the number of requests that have to end first, if they take longest."""
        own = num_tokens - num_cached
        if own < 1:
            own = 1
        cached = num_tokens - own
        pairs = own * (cached + own / 2)
        sent = self.sent_tokens * (1 - self.found_share)
        queued, chunk, decode_s, queued_token_s = self.queued_tokens, self.chunk, self.decode_s, self._queued_token_s
        # A new request joins the next step at the earliest.
        current = chunk if chunk < queued else queued
        wait = 0.0
        if self.num_running or current:
            wait = decode_s + current * queued_token_s
            wait = wait - self.age_s if self.age_s < wait else wait / 2  # an old forecast: half a step on average
        ahead = queued - current + sent
        num_full = ahead // chunk
        wait += num_full * decode_s + ahead * queued_token_s
        num_steps = ceil((ahead + own) / chunk) - num_full
        own_s = num_steps * decode_s + own * self.token_s + pairs * self.pair_s
        # Running requests have to end for a seat, or for blocks.
        num_ends = max(0.0, 1 + self.num_sent - self.free_seats)
        if (short := sent + num_tokens - self.free_tokens) > 0 and self.tokens_per_seq > 0:
            num_ends = max(num_ends, short / self.tokens_per_seq)
        if num_ends and (for_room := num_ends * self.seconds_to_an_end) > wait:
            return for_room + own_s, num_ends
        return wait + own_s, 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.num_running or self.num_waiting or self.num_sent)

    @property
    def tpot_s(self) -> float:
        """Seconds per token of a new request: a decode step, plus the prompts that arrive meanwhile. In balance each
        request that ends is followed by another: B sequences of A tokens bring B / A prompts a step."""
        if not self.answer_tokens:
            return self.decode_s
        num_others = self.num_running + self.num_waiting
        num_seqs = num_others + min(self.num_sent + 1, max(0, self.free_seats)) + min(0, self.free_seats)
        return self.decode_s + num_seqs / self.answer_tokens * self.prompt_tokens * self._queued_token_s

    @property
    def seconds_to_an_end(self) -> float:
        """Seconds between two ends of requests, while all seats are taken."""
        each = self.answer_tokens * self.decode_s / max(1, self.num_running)
        return each + self.prompt_tokens * self._queued_token_s

    @property
    def _queued_token_s(self) -> float:
        return self.token_s + self.prompt_tokens / 2 * self.pair_s

    def later(self, age_s: float, num_sent: int, sent_tokens: float) -> Forecast:
        return replace(self, age_s=max(0.0, age_s), num_sent=num_sent, sent_tokens=sent_tokens)
