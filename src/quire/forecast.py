"""What an engine tells of the time to come: how long a request that came now would wait, and how fast it would go on.

The engine reports a `Forecast` with its steps (`core/forecaster.py`). Whoever sends it requests asks it what one more
request would see, and adds what it has sent since. Arithmetic on a few numbers, which knows no engine and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import NamedTuple


class Prediction(NamedTuple):
    """What a request that came now would see."""

    ttft_s: float
    tpot_s: float
    spread_s: float = 0.0  #: standard deviation of the TTFT, as far as it hangs on when others end


@dataclass(slots=True)
class Forecast:
    """An engine's work and its speed, as far as the next request's latencies depend on them.

    A step computes at most `chunk` tokens beside what decodes. It takes `decode_s`, and `token_s` more for each token.
    """

    time: float = 0.0  #: seconds on the engine's clock, to which all of this belongs
    num_running: int = 0  #: sequences
    num_waiting: int = 0  #: requests
    queued_tokens: float = 0.0  #: that are computed before a newcomer's: of the queue, and of prompts half done
    free_seats: int = 1  #: sequences that may run beside those that run; those that wait take theirs first
    free_tokens: int = 1 << 62  #: for which there are KV blocks, likewise; less than 0 where they are short
    chunk: int = 512
    decode_s: float = 0.0  #: a step of what runs, of what waits, and of one more, prompts done
    token_s: float = 0.0  #: what computing a token of a prompt adds to a step
    pair_s: float = 0.0  #: what it adds that such a token looks back on one before it
    prompt_tokens: float = 0.0  #: that a request has had to compute lately, on average
    answer_tokens: float = 0.0  #: that an answer has had
    found_share: float = 0.0  #: of prompts' tokens, those whose KV was found lately
    tokens_per_seq: float = 0.0  #: KV that a running sequence holds, on average
    age_s: float = 0.0  #: how long ago `time` was
    num_sent: int = 0  #: requests that were sent to the engine and that it has not counted yet
    sent_tokens: float = 0.0  #: of their prompts

    def predict(self, num_tokens: int, num_cached: int = 0) -> Prediction:
        """The latencies of a request that is sent now.

        Args:
            num_tokens: of its prompt; a good guess will do.
            num_cached: of these, tokens whose KV the engine is known to have.
        """
        ttft_s, num_lacking = self._first_token(num_tokens, num_cached)
        # Ends that do not know of each other: their number has the variance of its mean (Poisson).
        spread = sqrt(num_lacking) * self.seconds_to_an_end if num_lacking else 0.0
        return Prediction(ttft_s, self.tpot_s, spread)

    def predict_ttft(self, num_tokens: int, num_cached: int = 0) -> float:
        """Of `predict` the seconds to the first token: a router asks every replica for these about every request."""
        return self._first_token(num_tokens, num_cached)[0]

    def _first_token(self, num_tokens: int, num_cached: int) -> tuple[float, float]:
        """Seconds to the first token, and how many requests have to end before, where that is what takes longest."""
        own = num_tokens - num_cached
        if own < 1:
            own = 1
        cached = num_tokens - own
        pairs = own * (cached + own / 2)
        sent = self.sent_tokens * (1 - self.found_share)
        queued, chunk, decode_s, queued_token_s = self.queued_tokens, self.chunk, self.decode_s, self._queued_token_s
        # The step under way is closed: a newcomer shares the next one at the earliest.
        under_way = chunk if chunk < queued else queued
        wait = 0.0
        if self.num_running or under_way:
            wait = decode_s + under_way * queued_token_s
            wait = wait - self.age_s if self.age_s < wait else wait / 2  # an old forecast: somewhere within a step
        ahead = queued - under_way + sent
        num_full = ahead // chunk
        wait += num_full * decode_s + ahead * queued_token_s
        num_steps = ceil((ahead + own) / chunk) - num_full
        own_s = num_steps * decode_s + own * self.token_s + pairs * self.pair_s
        # For a seat, or for blocks, some of those that run have to end.
        num_lacking = max(0.0, 1 + self.num_sent - self.free_seats)
        if (short := sent + num_tokens - self.free_tokens) > 0 and self.tokens_per_seq > 0:
            num_lacking = max(num_lacking, short / self.tokens_per_seq)
        if num_lacking and (for_room := num_lacking * self.seconds_to_an_end) > wait:
            return for_room + own_s, num_lacking
        return wait + own_s, 0.0

    @property
    def is_idle(self) -> bool:
        """Nothing runs, waits or is on its way there."""
        return not (self.num_running or self.num_waiting or self.num_sent)

    @property
    def tpot_s(self) -> float:
        """Seconds between two tokens of a newcomer: a step of all that decodes, and the prompts that come meanwhile.

        In balance those that end are followed by as many: with B sequences of A tokens each, B / A prompts a step.
        """
        if not self.answer_tokens:
            return self.decode_s
        num_others = self.num_running + self.num_waiting
        num_seqs = num_others + min(self.num_sent + 1, max(0, self.free_seats)) + min(0, self.free_seats)
        return self.decode_s + num_seqs / self.answer_tokens * self.prompt_tokens * self._queued_token_s

    @property
    def seconds_to_an_end(self) -> float:
        """Between two ends of requests, while all seats are taken."""
        each = self.answer_tokens * self.decode_s / max(1, self.num_running)
        return each + self.prompt_tokens * self._queued_token_s

    @property
    def _queued_token_s(self) -> float:
        return self.token_s + self.prompt_tokens / 2 * self.pair_s

    def later(self, age_s: float, num_sent: int, sent_tokens: float) -> Forecast:
        """The same engine, some time after: what has been sent to it since is not in its figures yet."""
        return replace(self, age_s=max(0.0, age_s), num_sent=num_sent, sent_tokens=sent_tokens)
