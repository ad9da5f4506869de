"""Watches an engine's steps, and says what a request that came now would have to wait for (`quire.forecast`).

The queue is the scheduler's, the seconds are the cost model's. How long answers are nobody knows before they end, so
that is learnt: tokens that were made over sequences that ended, which also counts those that still run. (For lengths
that are exponentially distributed, that is the most likely mean.)
"""

from __future__ import annotations

from quire.core.costs.interface import Costs, StepShape
from quire.core.scheduler import Scheduler
from quire.forecast import Forecast

_EVERY = 16  #: steps of a batch that stays the same
_MEMORY = 0.98  #: that an ended sequence leaves of what was learnt before it
_START_TOKENS = 128.0  #: of an answer, before the first has ended: one sequence's worth
_CLOCK_MEMORY = 0.98  #: that a step leaves
_FAR = 1024  #: tokens back, where what looking back costs is measured


class Forecaster:
    """Makes an engine's forecasts.

    Args:
        scheduler: its queue.
        costs: what its steps take.
    """

    def __init__(self, scheduler: Scheduler, costs: Costs) -> None:
        self._scheduler = scheduler
        self._costs = costs
        self._num_since = 0  #: steps since the last forecast
        self._seen = (-1, -1)  #: waiting requests and ended sequences, then
        self._counts = (0, 0, 0, 0)  #: ended sequences, made tokens, looked-up and found ones, as far as learnt
        self._ended, self._made, self._looked_up, self._found = 1.0, _START_TOKENS, 0.0, 0.0  #: lately, fading
        self._wall_s = self._busy_s = 0.0  #: lately, fading
        self._last: float | None = None  #: when the last step ended; None where the engine has been idle since

    def note_step(self, now: float, busy_s: float, *, is_steady: bool) -> Forecast | None:
        """A step is over.

        Args:
            now: on the engine's clock.
            busy_s: seconds of computing.
            is_steady: it computed no prompt.

        Returns:
            A forecast; None where the last one still holds, but for what time changes.
        """
        scheduler = self._scheduler
        if self._last is not None:
            self._wall_s = self._wall_s * _CLOCK_MEMORY + now - self._last
            self._busy_s = self._busy_s * _CLOCK_MEMORY + busy_s
        self._last = now if scheduler.running else None
        self._num_since += 1
        seen = len(scheduler.waiting), scheduler.counts.ended_sequences
        if is_steady and seen == self._seen and self._num_since < _EVERY:
            return None
        self._seen, self._num_since = seen, 0
        return self.forecast(now)

    def forecast(self, now: float) -> Forecast:
        """What a request that came now would have to wait for."""
        scheduler, costs = self._scheduler, self._costs
        config, kv, pool = scheduler.config, scheduler.kv, scheduler.kv.pool
        self._learn()
        num_running, num_waiting = scheduler.num_running_seqs, len(scheduler.waiting)
        queued, promised = scheduler.num_waiting_tokens, scheduler.num_promised_blocks * config.block_size
        found_share = self._found / self._looked_up if self._looked_up else 0.0
        num_seqs = min(config.max_num_seqs, num_running + num_waiting + 1)
        context = kv.num_kv_tokens // max(1, num_running) * num_seqs
        chunk = max(1, config.max_num_batched_tokens - num_running)
        decoding = StepShape(num_seqs, num_seqs, 0.0, context)
        with_chunk = StepShape(num_seqs + chunk, num_seqs + 1, chunk * chunk / 2, context)
        far = StepShape(num_seqs + chunk, num_seqs + 1, chunk * (_FAR + chunk / 2), context)
        # Beside computing there is deciding, telling, and waiting for a device's turn.
        slowdown = self._wall_s / self._busy_s if self._busy_s > 0 else 1.0
        decode_s, with_chunk_s = costs.step(decoding) * slowdown, costs.step(with_chunk) * slowdown
        pair_s = max(0.0, costs.step(far) * slowdown - with_chunk_s) / (chunk * _FAR)
        free_blocks = pool.num_available - config.watermark_blocks
        return Forecast(
            time=now,
            num_running=num_running,
            num_waiting=num_waiting,
            queued_tokens=queued * (1 - found_share) + promised if num_running else queued * (1 - found_share),
            free_seats=config.max_num_seqs - num_running - num_waiting,
            free_tokens=free_blocks * config.block_size - promised - queued,
            chunk=chunk,
            decode_s=decode_s,
            token_s=max(0.0, (with_chunk_s - decode_s) / chunk - pair_s * chunk / 2),
            pair_s=pair_s,
            prompt_tokens=(self._looked_up - self._found) / self._ended,
            answer_tokens=self._made / self._ended,
            found_share=found_share,
            tokens_per_seq=pool.num_used * config.block_size / num_running if num_running else 0.0,
        )

    def _learn(self) -> None:
        counts = self._scheduler.counts
        now = counts.ended_sequences, counts.sampled_tokens, counts.prefix_queries, counts.prefix_hits
        ended, made, looked_up, found = (new - old for new, old in zip(now, self._counts, strict=True))
        self._counts = now
        fading = _MEMORY**ended
        self._ended = self._ended * fading + ended
        self._made = self._made * fading + made
        self._looked_up = self._looked_up * fading + looked_up
        self._found = self._found * fading + found
