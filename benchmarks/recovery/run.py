"""One run of a load under one policy: cost of its preemptions, and decisions while the link changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.bench.report import Repetition
from quire.bench.timing import play
from quire.bench.workload import Workload
from quire.core.decisions.costs import Costs, find_crossings
from quire.core.decisions.load_or_compute import RecoveryMode
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.decisions.recovery_policy import Cost
from quire.engine.engine import Engine
from quire.outputs import Stats
from quire.simulate.token_times import Distribution, distribution
from quire.tiers.transfer_worker import TransferWorker

SLOWER = 10  #: times, where the link is slowed down in mid-run
_CROSSING_EVERY = 8  #: preemptions, between two looks at where the model's modes cross
_RUN_OF_DECISIONS = 3  #: in a row that make a turn-over, so that a probe makes none
_BEFORE = 20  #: decisions that say what was usual


@dataclass(frozen=True)
class LinkPlan:
    """Bandwidth of the link over a run."""

    bandwidth: float | None = None  #: bytes a second; None is as fast as it goes
    factor: float = 1.0  #: by which the link is slower in every second period
    period_s: float = 0.0
    slow_at: int | None = None  #: after this many preemptions the link is `SLOWER` times slower
    normal_at: int | None = None  #: after this many it is as before

    def at(self, elapsed_s: float, num_preemptions: int) -> float | None:
        """The bandwidth at a moment of a run."""
        if self.bandwidth is None:
            return None
        is_slow = self.slow_at is not None and num_preemptions >= self.slow_at
        if is_slow and (self.normal_at is None or num_preemptions < self.normal_at):
            return self.bandwidth / SLOWER
        if self.factor != 1 and int(elapsed_s / self.period_s) % 2:
            return self.bandwidth / self.factor
        return self.bandwidth


@dataclass(frozen=True, slots=True)
class Phase:
    """Begin of a phase with a constant bandwidth."""

    from_s: float  #: of the run
    from_preemption: int  #: the number of preemptions before this one
    bandwidth: float | None


@dataclass(frozen=True, slots=True)
class Crossing:
    """Crossing points of the cost model at some moment."""

    at_preemption: int
    points: list[int]


@dataclass
class RecoveryRun:
    """Measurements of one run."""

    repetition: Repetition
    tokens: list[list[int]]  #: of each request
    recoveries: list[RecoveryRecord]  #: in the order of their preemptions
    num_recomputed_tokens: int  #: computed in vain the first time
    save_s: float  #: of the link
    load_s: float  #: of the link
    compute_s: float  #: of steps, the share of what was computed again
    phases: list[Phase]
    crossings: list[Crossing] = field(default_factory=list)
    forecast: dict[str, dict[str, float]] = field(default_factory=dict)  #: see `simulate.figures.compare`

    @property
    def makespan_s(self) -> float:
        return self.repetition.wall_s

    @property
    def ttft_s(self) -> Distribution | None:
        return distribution(self.repetition.ttft_s)

    @property
    def tpot_s(self) -> Distribution | None:
        return distribution(self.repetition.tpot_s)

    @property
    def num_preemptions(self) -> int:
        return len(self.recoveries)

    @property
    def recovery_s(self) -> float:
        """Link time, and step time spent on recomputation."""
        return self.save_s + self.load_s + self.compute_s

    @property
    def by_mode(self) -> dict[str, int]:
        """Resumptions by mode (`RecoveryRecord.outcome`)."""
        return dict(Counter(recovery.outcome for recovery in self.recoveries))

    @property
    def errors(self) -> Distribution | None:
        """Relative errors |predicted - actual| / actual of closed recoveries."""
        return distribution([recovery.error for recovery in self.recoveries if recovery.error is not None])

    def turnovers(self) -> list[tuple[int, int | None]]:
        """For each change of bandwidth: the preemptions before it, and those until decisions changed (None if they did
        not).
        """
        found = []
        bounds = [*(phase.from_preemption for phase in self.phases), len(self.recoveries)]
        for before, start, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            counted = Counter(recovery.mode for recovery in self.recoveries[max(before, start - _BEFORE) : start])
            usual = max(counted, key=counted.__getitem__, default=None)
            found.append((start, _turnover(self.recoveries[start:end], usual)))
        return found


def _turnover(recoveries: Sequence[RecoveryRecord], usual: RecoveryMode | None) -> int | None:
    in_a_row = 0
    for at, recovery in enumerate(recoveries):
        in_a_row = in_a_row + 1 if recovery.mode is not usual else 0
        if in_a_row == _RUN_OF_DECISIONS:
            return at + 2 - _RUN_OF_DECISIONS
    return None


class _Watch:
    """Follows a run step by step and changes the link's bandwidth as planned."""

    def __init__(self, engine: Engine, plan: LinkPlan, judge: Costs) -> None:
        self._engine = engine
        self._plan = plan
        self._judge = judge
        self.compute_s = 0.0
        self._started = engine.clock()
        self._num_preemptions = 0
        self._next_crossing = 0
        self.phases: list[Phase] = []
        self.crossings: list[Crossing] = []
        self._set_bandwidth(0.0)

    def note(self, stats: Stats) -> None:
        self.compute_s += stats.busy_s * self._recomputed_share()
        self._num_preemptions += stats.preemptions
        self._set_bandwidth(stats.time - self._started)
        if self._num_preemptions >= self._next_crossing and isinstance(self._engine.scheduler.recovery.policy, Cost):
            self._next_crossing = self._num_preemptions + _CROSSING_EVERY
            config = self._engine.scheduler.config
            points = find_crossings(
                self._engine.costs.model,
                config.block_bytes // config.block_size,
                config.max_model_len,
                granularity=config.block_size,
                chunk=config.max_tokens_beside_streams or config.max_num_batched_tokens,
            )
            self.crossings.append(Crossing(self._num_preemptions, points))

    def _recomputed_share(self) -> float:
        scheduler = self._engine.scheduler
        recomputed = scheduler.recovery.log.recomputed
        if not recomputed:
            return 0.0
        shape = without = scheduler.step_shape
        for each in recomputed:
            without = without.minus_chunk(each.start, each.count)
        return max(0.0, 1.0 - self._judge.step(without) / max(1e-9, self._judge.step(shape)))

    def _set_bandwidth(self, elapsed_s: float) -> None:
        bandwidth = self._plan.at(elapsed_s, self._num_preemptions)
        if self.phases and self.phases[-1].bandwidth == bandwidth:
            return
        self.phases.append(Phase(elapsed_s, self._num_preemptions, bandwidth))
        link = transfer_worker_of(self._engine)
        if link is not None:
            link.bandwidth = bandwidth


def transfer_worker_of(engine: Engine) -> TransferWorker | None:
    """The link to the engine's swap tier."""
    return getattr(engine.runner, "transfer_worker", None)


def run_once(engine: Engine, workload: Workload, plan: LinkPlan, judge: Costs) -> RecoveryRun:
    """Run a load, all at once, on an idle, warm engine.

    Args:
        judge: costs that attribute a share of each step to recomputation, equal for all policies.

    Raises:
        ValueError: a request does not fit.
        RuntimeError: a request failed.
        AssertionError: blocks leaked.
    """
    scheduler = engine.scheduler
    log = scheduler.recovery.log
    log.closed.clear()
    wasted = scheduler.counts.recomputed_tokens
    watch = _Watch(engine, plan, judge)
    engine.on_stats.append(watch.note)
    try:
        repetition, tokens = play(engine, workload)
    finally:
        engine.on_stats.remove(watch.note)
    scheduler.check_integrity()
    return RecoveryRun(
        repetition=repetition,
        tokens=tokens,
        recoveries=sorted(log.closed, key=lambda recovery: recovery.step_id),
        num_recomputed_tokens=scheduler.counts.recomputed_tokens - wasted,
        save_s=sum(recovery.save_s for recovery in log.closed),
        load_s=sum(recovery.load_s for recovery in log.closed),
        compute_s=watch.compute_s,
        phases=watch.phases,
        crossings=watch.crossings,
    )


def first_difference(tokens: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """The first request and token that differ between two runs; None if none does."""
    for request, (ours, theirs) in enumerate(zip(tokens, others, strict=True)):
        if ours != theirs:
            pairs = zip(ours, theirs, strict=False)
            return request, next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    return None
