"""Watches an engine's steps, and says what a request that came now would have to wait for (`quire.forecast`).

The queue is the scheduler's, the seconds are the cost model's. How long answers are nobody knows before they end, so
that is learnt: tokens that were made over sequences that ended, which also counts those that still run. (For lengths
that are exponentially distributed, that is the most likely mean.)
"""

from __future__ import annotations

from quire.core.decisions.costs import Costs, StepShape
from quire.core.scheduler import Scheduler
from quire.forecast import Forecast

_EVERY = 32  #: steps of a batch that stays the same
_MEMORY = 0.98  #: that an ended sequence leaves of what was learnt before it
_START = 0.1, 12.8  #: ended sequences, and their tokens, that are believed in before any has ended
_CLOCK_MEMORY = 0.9  #: that a forecast leaves
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
        self._counts = (0, 0, 0, 0, 0)  #: see `_learn`
        self._ended, self._made = _START  #: lately, fading
        self._begun = self._looked_up = self._found = 0.0  #: likewise
        self._wall_s = self._busy_s = 0.0  #: lately, fading
        self._new_busy_s = 0.0  #: since the last forecast
        self._since: float | None = None  #: when that was; None where the engine was idle then

    def note_step(self, now: float, busy_s: float, *, is_steady: bool) -> Forecast | None:
        """A step is over.

        Args:
            now: on the engine's clock.
            busy_s: seconds of computing.
            is_steady: it computed no prompt.

        Returns:
            A forecast; None where the last one still holds, but for what time changes.
        """
        self._new_busy_s += busy_s
        self._num_since += 1
        if is_steady and self._num_since < _EVERY:
            scheduler = self._scheduler
            if self._seen == (len(scheduler.queue.waiting), scheduler.counts.ended_sequences):
                return None
        return self.forecast(now)

    def forecast(self, now: float) -> Forecast:
        """What a request that came now would have to wait for."""
        scheduler, costs = self._scheduler, self._costs
        config, kv, pool = scheduler.config, scheduler.kv, scheduler.kv.pool
        self._learn(now)
        num_running, num_waiting = scheduler.queue.num_running_seqs, len(scheduler.queue.waiting)
        queued, promised = scheduler.queue.num_waiting_tokens, scheduler.num_reserved_blocks * config.block_size
        found_share = self._found / self._looked_up if self._looked_up else 0.0
        num_seqs = min(config.max_num_seqs, num_running + num_waiting + 1)
        context = kv.num_kv_tokens // max(1, num_running) * num_seqs
        decoding = StepShape(num_seqs, num_seqs, 0.0, context)
        chunk = scheduler.budget.chunk_beside(StepShape(num_running, num_running, 0.0, kv.num_kv_tokens))
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
            prompt_tokens=(self._looked_up - self._found) / self._begun if self._begun else 0.0,
            answer_tokens=self._made / self._ended,
            found_share=found_share,
            tokens_per_seq=pool.num_used * config.block_size / num_running if num_running else 0.0,
        )

    def _learn(self, time_s: float) -> None:
        scheduler, counts = self._scheduler, self._scheduler.counts
        if self._since is not None:
            self._wall_s = self._wall_s * _CLOCK_MEMORY + time_s - self._since
            self._busy_s = self._busy_s * _CLOCK_MEMORY + self._new_busy_s
        self._since, self._new_busy_s, self._num_since = time_s if scheduler.queue.running else None, 0.0, 0
        self._seen = len(scheduler.queue.waiting), counts.ended_sequences
        now = (
            counts.ended_sequences,
            counts.sampled_tokens,
            counts.begun_requests,
            counts.prefix_queries,
            counts.prefix_hits,
        )
        ended, made, begun, looked_up, found = (new - old for new, old in zip(now, self._counts, strict=True))
        self._counts = now
        fading = _MEMORY**ended
        self._ended = self._ended * fading + ended
        self._made = self._made * fading + made
        self._begun = self._begun * fading + begun
        self._looked_up = self._looked_up * fading + looked_up
        self._found = self._found * fading + found
