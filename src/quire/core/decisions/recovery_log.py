"""What preemptions were predicted to cost, and what they cost: from giving blocks up until the request is back.

Keeps one open entry for each preempted request, the latest that are over, and sums for metrics. Seconds come from
outside: the link's, and the share of a step that computed tokens again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.core.decisions.recovery_interface import Preemption, RecoveryMode
from quire.outputs import RecoveryStats, TransferReport

_MAX_OVER = 10_000  #: entries that are over


@dataclass(slots=True)
class Recovery:
    """One preemption, and what it cost to come back from it."""

    request_id: str
    mode: RecoveryMode  #: that was chosen
    num_tokens: int  #: that the request had computed
    step_id: int  #: in which it was preempted
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds by mode
    fell_back: bool = False  #: some block that was to be swapped was not: `mode` is not all of what it took
    save_s: float = 0.0  #: of the link
    load_s: float = 0.0
    compute_s: float = 0.0  #: of steps, by the share of tokens computed again
    num_recomputed: int = 0
    num_saved: int = 0  #: blocks whose saves were not cancelled
    num_loaded: int = 0
    num_saving: int = 0  #: of those saved, blocks not reported yet
    num_full: int = 0  #: blocks of a request of one sequence when it was preempted
    num_given_up: int = 0  #: of these, blocks that nobody held any more
    is_complete: bool = False  #: else it was preempted again, or ended, before it stood where it stood

    @property
    def seconds(self) -> float:
        return self.save_s + self.load_s + self.compute_s

    @property
    def outcome(self) -> str:
        """The mode by which it came back, or "fell back"."""
        return "fell back" if self.fell_back else self.mode.value

    @property
    def error(self) -> float | None:
        """|predicted - actual| / actual of the mode that was taken; None where it was not, or cost nothing."""
        predicted = self.predicted.get(self.mode.value)
        if predicted is None or self.fell_back or not self.is_complete or self.seconds <= 0.0:
            return None
        return abs(predicted - self.seconds) / self.seconds

    def end_transfer(self, kind: str, seconds: float, *, is_cancelled: bool) -> None:
        """One of its blocks was moved in `seconds` of the link, or its transfer was cancelled."""
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
    start: int  #: the first one's position
    count: int


class RecoveryLog:
    """The recoveries of one scheduler.

    Attributes:
        over: the latest entries that are over, oldest first.
        recomputed: tokens that the step computes again which is being made, or was made last.
    """

    def __init__(self) -> None:
        self.over: deque[Recovery] = deque(maxlen=_MAX_OVER)
        self.recomputed: list[Recomputed] = []
        self._open: dict[str, Recovery] = {}
        self._recovery_of: dict[int, Recovery] = {}  #: by op_id of a save or load
        self._stats: RecoveryStats | None = None  #: since they were last taken

    def take_stats(self) -> RecoveryStats | None:
        """What happened since the last call; None where nothing did."""
        stats, self._stats = self._stats, None
        return stats

    def _noted(self) -> RecoveryStats:
        """Where to add what happens."""
        if self._stats is None:
            self._stats = RecoveryStats()
        return self._stats

    def begin_step(self) -> None:
        self.recomputed.clear()

    def open_of(self, request_id: str) -> Recovery | None:
        """The entry of a request that is not back yet."""
        return self._open.get(request_id)

    def open_recoveries(self) -> list[Recovery]:
        """The entries of all requests that are not back yet."""
        return list(self._open.values())

    def give_up(self, step_id: int, num_tokens: int, choice: Preemption, save_ids: Iterable[int]) -> Recovery:
        """The victim gives its blocks up, and these operations save them. Returns its entry, which is open now."""
        request_id = choice.victim.request_id
        self.leave(request_id)
        recovery = Recovery(request_id, choice.mode, num_tokens, step_id, dict(choice.predicted))
        self._open[request_id] = recovery
        self._noted().preemptions[choice.mode.value] += 1
        for op_id in save_ids:
            recovery.num_saved += 1
            recovery.num_saving += 1
            self._recovery_of[op_id] = recovery
        return recovery

    def note_load(self, request_id: str, op_ids: Iterable[int]) -> None:
        """These operations bring a request's blocks back."""
        recovery = self._open.get(request_id)
        if recovery is not None:
            for op_id in op_ids:
                recovery.num_loaded += 1
                self._recovery_of[op_id] = recovery

    def note_fallback(self, request_id: str) -> None:
        """A block of a request that was saved, or was to be saved, is not loaded."""
        recovery = self._open.get(request_id)
        if recovery is not None:
            recovery.fell_back = True

    def note_recomputed(self, request_id: str, start: int, count: int) -> None:
        """The step that is being made computes tokens again."""
        self.recomputed.append(Recomputed(request_id, start, count))
        self._noted().num_recomputed_tokens += count
        recovery = self._open.get(request_id)
        if recovery is not None:
            recovery.num_recomputed += count

    def note_compute(self, request_id: str, seconds: float) -> None:
        """A share of a step went into computing a request's tokens again."""
        recovery = self._open.get(request_id)
        if recovery is not None:
            recovery.compute_s += seconds
            self._noted().seconds[recovery.mode.value] += seconds

    def note_transfers(self, reports: Iterable[TransferReport]) -> None:
        """Transfers have ended; each counts with its share of its run's seconds. What is moved to disk and back for
        other reasons than recovery does not count."""
        for report in reports:
            if report.tier != "host" and not any(op_id in self._recovery_of for op_id in report.op_ids):
                continue
            stats = self._noted()
            num_blocks = len(report.op_ids)
            num_cancelled = num_blocks if report.is_cancelled else 0
            num_arrived = num_blocks - num_cancelled - len(report.failed)
            if num_cancelled:
                stats.cancelled_blocks[report.kind] += num_cancelled
            stats.swapped_blocks[report.kind] += num_arrived
            stats.swapped_bytes[report.kind] += report.num_bytes * num_arrived // max(1, num_blocks)
            each = report.copy_s / num_blocks if num_blocks else 0.0
            for op_id in report.op_ids:
                recovery = self._recovery_of.pop(op_id, None)
                if recovery is None:
                    continue
                stats.seconds[recovery.mode.value] += each
                recovery.end_transfer(report.kind, each, is_cancelled=report.is_cancelled)

    def complete(self, request_id: str) -> None:
        """A request stands where it stood."""
        recovery = self._open[request_id]
        recovery.is_complete = True
        if recovery.error is not None:
            self._noted().errors.append((recovery.mode.value, recovery.error))
        self.leave(request_id)

    def leave(self, request_id: str) -> None:
        """A request's recovery is over, in whatever way; harmless where there is none."""
        recovery = self._open.pop(request_id, None)
        if recovery is not None:
            self.over.append(recovery)
