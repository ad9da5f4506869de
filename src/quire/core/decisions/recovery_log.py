"""Predicted and measured costs of preemptions, from giving up blocks until the request is back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.core.decisions.load_or_compute import RecoveryMode, RecoveryPlan
from quire.outputs import RecoveryStats, TransferReport

PROBE_SHARE = 0.02  #: share of all seconds of recovery that probes of the link may take
STALE_AFTER = 16  #: preemptions without a transfer after which the link may have changed
_MAX_CLOSED = 10_000  #: records


@dataclass(slots=True)
class RecoveryRecord:
    """One preemption and the cost of resuming from it."""

    request_id: str
    mode: RecoveryMode  #: planned
    num_tokens: int  #: computed before the preemption
    step_id: int  #: of the preemption
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds by mode
    fell_back: bool = False  #: some saved block was not loaded, or a save was cancelled
    save_s: float = 0.0  #: of the link
    load_s: float = 0.0
    compute_s: float = 0.0  #: of steps, by the share of recomputed tokens
    num_recomputed: int = 0  #: tokens
    num_saved: int = 0  #: blocks whose saves were not cancelled
    num_loaded: int = 0
    num_saving: int = 0  #: blocks whose saves have not been reported
    num_full: int = 0  #: full blocks at the preemption, of a request with one sequence
    num_freed: int = 0  #: how many of them no other request held
    forecast_evictions: float = 0.0  #: how many of those were expected to be evicted
    is_probe: bool = False  #: a block was saved to measure the link
    is_complete: bool = False  #: the request got back to where it was; else it was preempted again, or ended

    @property
    def seconds(self) -> float:
        return self.save_s + self.load_s + self.compute_s

    @property
    def outcome(self) -> str:
        """The mode by which the request resumed, or "fell back"."""
        return "fell back" if self.fell_back else self.mode.value

    @property
    def error(self) -> float | None:
        """|predicted - actual| / actual; None if the plan was not carried out, or cost nothing."""
        predicted = self.predicted.get(self.mode.value)
        if predicted is None or self.fell_back or not self.is_complete or self.seconds <= 0.0:
            return None
        return abs(predicted - self.seconds) / self.seconds

    def end_transfer(self, kind: str, seconds: float, *, is_cancelled: bool) -> None:
        """Count one block whose transfer has ended."""
        if kind == "save":
            self.save_s += seconds
            self.num_saving -= 1
            self.num_saved -= is_cancelled
        else:
            self.load_s += seconds
            self.num_loaded -= is_cancelled


@dataclass(slots=True)
class Recomputed:
    """Tokens of a step that had been computed before."""

    request_id: str
    start: int
    count: int


class RecoveryLog:
    """The open recoveries of one scheduler, the latest closed ones (oldest first), and sums for metrics. `recomputed`
    counts the tokens that the latest step computes again."""

    def __init__(self) -> None:
        self.closed: deque[RecoveryRecord] = deque(maxlen=_MAX_CLOSED)
        self.recomputed: list[Recomputed] = []
        self._open: dict[str, RecoveryRecord] = {}
        self._record_of: dict[int, RecoveryRecord] = {}  #: by op_id of a save or load
        self._stats: RecoveryStats | None = None  #: since `take_stats`
        self.spent_s = self.probed_s = 0.0  #: of all recoveries, and of the transfers of probes
        self._probe: RecoveryRecord | None = None  #: the latest
        self._num_unseen = 0  #: preemptions since the latest transfer, or the start

    def take_stats(self) -> RecoveryStats | None:
        """Sums since the last call; None if nothing happened."""
        stats, self._stats = self._stats, None
        return stats

    def _current_stats(self) -> RecoveryStats:
        if self._stats is None:
            self._stats = RecoveryStats()
        return self._stats

    @property
    def is_link_fresh(self) -> bool:
        """Whether a transfer has been measured in the last `STALE_AFTER` preemptions; a profile counts as one."""
        return self._num_unseen < STALE_AFTER

    @property
    def probe_budget_s(self) -> float:
        """Seconds that the next probe may take; 0 until the last one has ended."""
        probe = self._probe
        is_open = probe is not None and (probe.num_saving > 0 or self._open.get(probe.request_id) is probe)
        return 0.0 if is_open else PROBE_SHARE * self.spent_s - self.probed_s

    def begin_step(self) -> None:
        self.recomputed.clear()

    def open_record(self, request_id: str) -> RecoveryRecord | None:
        """The record of a request that is not back yet."""
        return self._open.get(request_id)

    def open_records(self) -> list[RecoveryRecord]:
        return list(self._open.values())

    def open(
        self, request_id: str, step_id: int, num_tokens: int, plan: RecoveryPlan, save_ids: Iterable[int]
    ) -> RecoveryRecord:
        """Open a record for a request with `num_tokens` computed; `save_ids` are op_ids of the saves of its blocks."""
        self.close(request_id)
        record = RecoveryRecord(
            request_id, plan.mode, num_tokens, step_id, dict(plan.predicted), is_probe=plan.is_probe
        )
        self._num_unseen += 1
        if plan.is_probe:
            self._probe = record
        self._open[request_id] = record
        self._current_stats().preemptions[plan.mode.value] += 1
        for op_id in save_ids:
            record.num_saved += 1
            record.num_saving += 1
            self._record_of[op_id] = record
        return record

    def record_loads(self, record: RecoveryRecord | None, op_ids: Iterable[int]) -> None:
        """Assign loads to the preempted request that they bring back, if it is one."""
        if record is not None:
            for op_id in op_ids:
                record.num_loaded += 1
                self._record_of[op_id] = record

    def record_fallback(self, request_id: str) -> None:
        """Record that a request computes blocks that were to be loaded."""
        if (record := self._open.get(request_id)) is not None:
            record.fell_back = True

    def record_recomputed(self, request_id: str, start: int, count: int) -> None:
        """Record tokens that the step under way computes again."""
        self.recomputed.append(Recomputed(request_id, start, count))
        self._current_stats().num_recomputed_tokens += count
        if (record := self._open.get(request_id)) is not None:
            record.num_recomputed += count

    def record_compute(self, request_id: str, seconds: float) -> None:
        """Add the share of a step that recomputed a request's tokens."""
        if (record := self._open.get(request_id)) is not None:
            record.compute_s += seconds
            self.spent_s += seconds
            self._current_stats().seconds[record.mode.value] += seconds

    def record_transfers(self, reports: Iterable[TransferReport]) -> None:
        """Add ended transfers, each block with its share of the seconds; from and to disk only those of a recovery."""
        for report in reports:
            if report.tier != "host" and not any(op_id in self._record_of for op_id in report.op_ids):
                continue
            stats = self._current_stats()
            num_blocks = len(report.op_ids)
            num_cancelled = num_blocks if report.is_cancelled else 0
            num_arrived = num_blocks - num_cancelled - len(report.failed)
            if num_arrived and report.tier == "host":
                self._num_unseen = 0
            if num_cancelled:
                stats.cancelled_blocks[report.kind] += num_cancelled
            stats.swapped_blocks[report.kind] += num_arrived
            stats.swapped_bytes[report.kind] += report.num_bytes * num_arrived // max(1, num_blocks)
            each_s = report.copy_s / max(1, num_blocks)
            for op_id in report.op_ids:
                if (record := self._record_of.pop(op_id, None)) is not None:
                    stats.seconds[record.mode.value] += each_s
                    self.spent_s += each_s
                    self.probed_s += each_s if record.is_probe else 0.0
                    record.end_transfer(report.kind, each_s, is_cancelled=report.is_cancelled)

    def complete(self, request_id: str) -> None:
        """Close the record of a request that is back where it was."""
        record = self._open[request_id]
        record.is_complete = True
        if record.error is not None:
            self._current_stats().errors.append((record.mode.value, record.error))
        self.close(request_id)

    def close(self, request_id: str) -> None:
        """Close a request's record, if it has an open one."""
        if (record := self._open.pop(request_id, None)) is not None:
            self.closed.append(record)
