"""What preemptions cost: from giving blocks up until the request stands where it stood.

Keeps one open entry a preempted request, those that are over, and sums for metrics. Seconds come from outside: the
link's, and the share of a step that went into computing again. Knows nothing about clocks or policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quire.core.recovery.interface import Preemption, RecoveryMode, prediction_error
from quire.core.recovery.regret import Regret
from quire.outputs import RecoveryStats, TransferReport

_KEPT = 10_000  # recoveries that are over


@dataclass(slots=True)
class Recovery:
    """One preemption, and what it cost to come back from it."""

    request_id: str
    mode: RecoveryMode  #: that was chosen
    num_tokens: int  #: that the request had computed
    step_id: int  #: in which it was preempted
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds by mode
    is_sample: bool = False  #: it took another mode than it should have, to see what would have been
    is_probe: bool = False  #: a small part of it did, to tell about the link
    fell_back: bool = False  #: not all that was to be saved and loaded was: `mode` is not, or not all, what it took
    save_s: float = 0.0  #: of the link
    load_s: float = 0.0
    compute_s: float = 0.0  #: of steps, by the share of what was computed again
    num_recomputed: int = 0
    num_saved: int = 0  #: blocks, of which none was given up
    num_loaded: int = 0
    num_saving: int = 0  #: of those saved, blocks of which the link has not told yet
    num_full: int = 0  #: blocks of a request of one sequence when it was preempted
    num_given_up: int = 0  #: of these, blocks that nobody held any more
    is_complete: bool = False  #: else it was preempted again, or ended, before it stood where it stood

    @property
    def seconds(self) -> float:
        return self.save_s + self.load_s + self.compute_s

    @property
    def way_back(self) -> str:
        """By which mode it came back; "fell back" is one of which not all that was to be swapped was."""
        return "fell back" if self.fell_back else self.mode.value

    def end_transfer(self, kind: str, seconds: float, *, is_cancelled: bool) -> None:
        """One of its blocks was moved in so many seconds of the link, or given up."""
        if kind == "save":
            self.save_s += seconds
            self.num_saving -= 1
            self.num_saved -= is_cancelled
        else:
            self.load_s += seconds
            self.num_loaded -= is_cancelled

    @property
    def is_experiment(self) -> bool:
        """Whether it is to tell what its mode costs, and so must not leave it."""
        return self.is_sample or self.is_probe


@dataclass(slots=True)
class Recomputed:
    """Tokens of a step that had been computed before."""

    request_id: str
    start: int  #: the first one's position
    count: int


class RecoveryLog:
    """The recoveries of one scheduler.

    Attributes:
        over: the latest that are over, oldest first.
        recomputed: what the step that is being made, or was made last, computes again.
        on_complete: called with each recovery that is complete.
    """

    def __init__(self) -> None:
        self.over: deque[Recovery] = deque(maxlen=_KEPT)
        self.recomputed: list[Recomputed] = []
        self.on_complete: list[Callable[[Recovery], None]] = []
        self._open: dict[str, Recovery] = {}
        self._recovery_of: dict[int, Recovery] = {}  #: by op_id of a save or load
        self._stats: RecoveryStats | None = None  #: since they were last taken
        self._regret = Regret()
        self._regret_told = 0.0  #: seconds of it that stats have told of

    def take_stats(self) -> RecoveryStats | None:
        """What happened since this was last asked; None where nothing did."""
        stats, self._stats = self._stats, None
        return stats

    def _noted(self) -> RecoveryStats:
        """Where to add what happens."""
        if self._stats is None:
            self._stats = RecoveryStats()
        return self._stats

    def begin_step(self) -> None:
        self.recomputed.clear()

    def give_up(
        self, step_id: int, request_id: str, num_tokens: int, choice: Preemption, save_ids: Iterable[int]
    ) -> Recovery:
        """A request gives its blocks up, and these operations save them. Returns its entry, which is open now."""
        self.leave(request_id)
        recovery = Recovery(
            request_id, choice.mode, num_tokens, step_id, dict(choice.predicted),
            is_sample=choice.is_sample, is_probe=choice.probes is RecoveryMode.SWAP,
        )  # fmt: skip
        self._open[request_id] = recovery
        stats = self._noted()
        stats.preemptions[choice.mode.value] += 1
        if choice.probes is not None:
            stats.probes[choice.probes.value] += 1
        for op_id in save_ids:
            recovery.num_saved += 1
            recovery.num_saving += 1
            self._recovery_of[op_id] = recovery
        return recovery

    def open_of(self, request_id: str) -> Recovery | None:
        """The entry of a request that is not back yet."""
        return self._open.get(request_id)

    def note_load(self, request_id: str, op_ids: Iterable[int]) -> None:
        """These operations bring a request's blocks back."""
        recovery = self._open.get(request_id)
        if recovery is not None:
            for op_id in op_ids:
                recovery.num_loaded += 1
                self._recovery_of[op_id] = recovery

    def note_fallback(self, request_id: str) -> None:
        """Of what was saved of a request, or was to be, something is not loaded."""
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
        """So much of a step went into computing a request's tokens again."""
        recovery = self._open.get(request_id)
        if recovery is not None:
            recovery.compute_s += seconds
            self._noted().seconds[recovery.mode.value] += seconds

    def note_transfers(self, reports: Iterable[TransferReport]) -> None:
        """Transfers have ended; each counts with its share of its run's seconds."""
        for report in reports:
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
                    stats.ahead_s += each
                    continue
                stats.seconds[recovery.mode.value] += each
                recovery.end_transfer(report.kind, each, is_cancelled=report.is_cancelled)

    def open_recoveries(self) -> list[Recovery]:
        """The entries of requests that are not back yet."""
        return list(self._open.values())

    def complete(self, request_id: str) -> None:
        """A request stands where it stood."""
        recovery = self._open[request_id]
        recovery.is_complete = True
        self._note_prediction(recovery)
        self.leave(request_id)
        for listener in self.on_complete:
            listener(recovery)

    def _note_prediction(self, recovery: Recovery) -> None:
        """What was predicted, beside what it cost."""
        if recovery.fell_back:
            return
        stats, actual = self._noted(), recovery.seconds
        error = prediction_error(recovery.predicted, recovery.mode, actual)
        if error is not None:
            stats.errors.append((recovery.mode.value, error))
        if recovery.is_sample and self._regret.note(recovery.predicted, recovery.mode, actual):
            stats.num_regret_samples += 1
            grown = max(0.0, self._regret.seconds - self._regret_told)  # counters never fall: they stand at the highest
            stats.regret_s += grown
            self._regret_told += grown

    def leave(self, request_id: str) -> None:
        """A request's recovery is over, in whatever way; harmless where there is none."""
        recovery = self._open.pop(request_id, None)
        if recovery is not None:
            self.over.append(recovery)
