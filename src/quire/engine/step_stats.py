"""The `Stats` of each step: counts of the step, and the scheduler's state after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from quire.core.forecaster import Forecaster
from quire.core.scheduler import Scheduler
from quire.outputs import SchedulerOutput, Stats, TransferReport


class StepStats:
    def __init__(self, scheduler: Scheduler, forecaster: Forecaster) -> None:
        self._scheduler = scheduler
        self._forecaster = forecaster
        self.audits: Counter[tuple[str, str]] = Counter()  #: since the last step that was reported
        self.stored_share = 1.0  #: see `StoreChanges`
        self.begin()

    def begin(self) -> None:
        counts = self._scheduler.counts
        self._before = replace(counts, hits_by_tier=Counter(counts.hits_by_tier))
        self._ways = Counter(self._scheduler.prefixes.ways)
        drafts = self._scheduler.speculator.counts
        self._drafts = replace(drafts, accepted=Counter(drafts.accepted))

    def finish(self, stats: Stats, out: SchedulerOutput, transfers: Sequence[TransferReport]) -> None:
        counts, before = self._scheduler.counts, self._before
        stats.num_sampled_tokens = counts.sampled_tokens - before.sampled_tokens
        stats.prefix_queries = counts.prefix_queries - before.prefix_queries
        stats.prefix_hits = counts.prefix_hits - before.prefix_hits
        stats.ahead_tokens = counts.ahead_tokens - before.ahead_tokens
        stats.prefix_ways = self._scheduler.prefixes.ways - self._ways
        drafts = self._scheduler.speculator.counts
        stats.drafts = drafts.drafts - self._drafts.drafts
        stats.draft_tokens = drafts.draft_tokens - self._drafts.draft_tokens
        stats.accepted_drafts = drafts.accepted - self._drafts.accepted
        stats.hits_by_tier = counts.hits_by_tier - before.hits_by_tier
        stats.preemptions = counts.preemptions - before.preemptions
        stats.recovery = self._scheduler.recovery.log.take_stats()
        for report in transfers:
            if report.tier == "disk" and not report.is_cancelled:
                stats.disk_failed[report.kind] += len(report.failed)
                stats.disk_moved[report.kind] += len(report.op_ids) - len(report.failed)
        self.describe_state(stats)
        is_steady = out.total_tokens == len(out.seq_ids)
        stats.forecast = self._forecaster.record_step(stats.time, stats.busy_s, is_steady=is_steady)

    def snapshot(self, step_id: int, now: float) -> Stats:
        stats = Stats(step_id, now)
        self.describe_state(stats)
        stats.forecast = self._forecaster.forecast(now)
        return stats

    def describe_state(self, stats: Stats) -> None:
        stats.audits, self.audits = self.audits, Counter()
        scheduler, kv = self._scheduler, self._scheduler.kv
        tier, block_bytes = scheduler.swap.tier, scheduler.config.block_bytes
        stats.num_running = len(scheduler.queue.running)
        stats.num_waiting = len(scheduler.queue.waiting) + len(scheduler.queue.blocked)
        stats.num_blocked = Counter(
            request.blocked_on.value for request in scheduler.queue.blocked.values() if request.blocked_on
        )
        stats.num_disk_blocks = len(scheduler.swap.on_disk)
        stats.disk_bytes = round(stats.num_disk_blocks * block_bytes * self.stored_share)
        stats.num_preempted = scheduler.queue.num_preempted
        stats.num_blocks = kv.pool.num_blocks
        stats.num_used_blocks = kv.pool.num_used
        stats.num_cached_blocks = kv.pool.num_cached
        stats.num_logical_blocks = kv.num_logical_blocks
        stats.num_kv_tokens = kv.num_kv_tokens
        stats.swap_bytes = tier.num_slots * block_bytes
        stats.swap_used_bytes = (tier.num_slots - tier.num_available) * block_bytes
