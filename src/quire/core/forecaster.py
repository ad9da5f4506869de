"""Forecast the latencies of the next request (`quire.forecast`) from the queue and the cost model. The mean answer
length is sampled tokens divided by ended sequences (the maximum likelihood for exponential lengths)."""

from __future__ import annotations

from quire.core.decisions.costs import Costs, StepShape
from quire.core.request import Request
from quire.core.scheduler import Scheduler
from quire.forecast import Forecast
from quire.outputs import COMPUTED

_EVERY = 32  #: steps between forecasts while the batch is the same
_MEMORY = 0.98  #: factor on earlier observations for each ended sequence
_START = 0.1, 12.8  #: prior: ended sequences, and their tokens
_CLOCK_MEMORY = 0.9  #: factor on earlier seconds for each forecast
_FAR = 1024  #: context, in tokens, at which its cost is measured


class Forecaster:
    def __init__(self, scheduler: Scheduler, costs: Costs) -> None:
        self._scheduler = scheduler
        self._costs = costs
        self._num_since = 0  #: steps since the last forecast
        self._seen = (-1, -1)  #: waiting requests and ended sequences at the last forecast
        self._counts = (0, 0, 0, 0, 0)  #: see `_learn`
        self._ended, self._made = _START  #: recent ones, decaying
        self._begun = self._looked_up = self._found = 0.0
        self._wall_s = self._busy_s = 0.0  #: recent ones, decaying
        self._new_busy_s = 0.0  #: since the last forecast
        self._since: float | None = None  #: time of the last forecast; None if the engine was idle then

    def record_step(self, now: float, busy_s: float, *, is_steady: bool) -> Forecast | None:
        """Record a step of `busy_s` seconds (steady: no prompt tokens); return a forecast, None if the last holds."""
        self._new_busy_s += busy_s
        self._num_since += 1
        if is_steady and self._num_since < _EVERY:
            scheduler = self._scheduler
            if self._seen == (len(scheduler.queue.waiting), scheduler.counts.ended_sequences):
                return None
        return self.forecast(now)

    def forecast(self, now: float) -> Forecast:
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
        # Steps also schedule, report, and wait for a shared device.
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

    def predict_misses(self, request: Request) -> float:
        """Predict the seconds to compute a prompt's tokens that were not found."""
        start, seconds, chunk = 0, 0.0, self._scheduler.budget.chunk_beside(None)
        for source, number in request.all_sources:
            if source == COMPUTED:
                seconds += self._costs.recompute(number, start=start, chunk=chunk)
            start += number
        return seconds

    def _learn(self, time_s: float) -> None:
        scheduler, counts = self._scheduler, self._scheduler.counts
        if self._since is not None:
            self._wall_s = self._wall_s * _CLOCK_MEMORY + time_s - self._since
            self._busy_s = self._busy_s * _CLOCK_MEMORY + self._new_busy_s
        self._since, self._new_busy_s, self._num_since = time_s if scheduler.queue.running else None, 0.0, 0
        self._seen = len(scheduler.queue.waiting), counts.ended_sequences
        now = counts.ended_sequences, counts.sampled_tokens, counts.begun_requests
        self._counts, before = (*now, counts.prefix_queries, counts.prefix_hits), self._counts
        ended, made, begun, looked_up, found = (new - old for new, old in zip(self._counts, before, strict=True))
        fading = _MEMORY**ended
        self._ended = self._ended * fading + ended
        self._made = self._made * fading + made
        self._begun = self._begun * fading + begun
        self._looked_up = self._looked_up * fading + looked_up
        self._found = self._found * fading + found
