"""The link of a simulated run is counted completely, and probed little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import EMPTY_STEP, Costs, StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import Cost, make_policy
from quire.outputs import TransferReport
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from quire.simulate.virtual_runner import VirtualLink
from simulate.machines import BLOCK_BYTES, ExactCosts, limits, machine

FAST_S, SLOW_S = 0.02, 0.6  #: of a block in one direction; recomputing it adds 0.25 s to steps
CROWD = [Arrival(0.0, 8 + at % 5, 30 + at % 7) for at in range(40)]
CROWDS = [[Arrival(0.0, 8 + (at + k) % 5, 30 + at * (k + 1) % 7) for at in range(40)] for k in range(6)]
CALM = [Arrival(0.0, 12 + at % 3, 28 - at % 7) for at in range(30)]


def learner(costs: Costs | None = None) -> CostModel:
    """A cost model trained on the fast machine."""
    model = CostModel()
    costs = costs or ExactCosts(FAST_S, FAST_S)
    for count in (1, 2, 4, 8, 16) * 8:
        for shape in (StepShape(count, count, 0.0, 20 * count), EMPTY_STEP.plus_chunk(0, count)):
            model.observe_step(shape, costs.step(shape))
        for kind in ("save", "load"):
            model.observe_transfer(kind, count * BLOCK_BYTES, count * FAST_S)
    return CostModel.from_dict(model.to_dict())  # its engine has not run yet


def run(policy: str, load: Sequence[Arrival] = CROWD, **given: int | bool) -> SimulationFigures:
    model = learner()
    hardware = machine(save_s=FAST_S, load_s=FAST_S)
    return simulate(load, hardware, limits(**given), make_policy(policy), learner=model)


@pytest.fixture
def link_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return all seconds of the link."""
    taken: list[float] = []
    take_ended = VirtualLink.take_ended

    def noting(self: VirtualLink, now: float) -> list[TransferReport]:
        reports = take_ended(self, now)
        taken.extend(report.copy_s for report in reports)
        return reports

    monkeypatch.setattr(VirtualLink, "take_ended", noting)
    return taken


@pytest.mark.parametrize("policy", ["recompute", "swap", "cost"])
def test_whatever_the_link_did_counts_as_recovery(policy: str, link_s: list[float]) -> None:
    found = run(policy, num_blocks=40)
    assert found.num_preemptions > 10
    assert found.save_s + found.load_s == pytest.approx(sum(link_s))
    assert found.recovery_s == pytest.approx(sum(link_s) + found.recompute_s)


def test_the_link_is_not_probed_while_blocks_are_never_short(link_s: list[float]) -> None:
    found = run("cost", num_blocks=8 * 12 + 16)
    assert found.num_preemptions == 0
    assert not link_s


@pytest.mark.parametrize("kind", ["save", "load"])
def test_a_link_that_brings_nothing_costs_little_more_than_computing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_ended = VirtualLink.take_ended

    def failing(self: VirtualLink, now: float) -> list[TransferReport]:
        return [replace(r, failed=r.op_ids) if r.kind == kind else r for r in take_ended(self, now)]

    monkeypatch.setattr(VirtualLink, "take_ended", failing)
    computed = [run("recompute", load, num_blocks=40) for load in CROWDS]
    found = [run("cost", load, num_blocks=40) for load in CROWDS]
    assert all(each.num_preemptions > 10 for each in found)
    assert sum(each.recovery_s for each in found) <= 1.15 * sum(each.recovery_s for each in computed)
    for each in found:
        assert each.preemptions_by_mode.get("swap", 0) <= 8, "as many as it takes to see that it fails"


@dataclass(frozen=True)
class ChangingLink(ExactCosts):
    """A link that switches to the other speed after this many victims."""

    after: int = 0
    other_s: float = SLOW_S
    modes: list[RecoveryMode] = field(default_factory=list)  #: victims so far

    def step(self, shape: StepShape) -> float:
        return shape.num_tokens / 16  # a step without its constant second, in which even a slow link moves a block

    def save(self, num_bytes: int, tier: str = "host") -> float:
        seconds = self.other_s if len(self.modes) >= self.after else self.save_s
        return num_bytes / BLOCK_BYTES * seconds

    load = save


class Noting(Cost):
    """Records its decisions."""

    def __init__(self, modes: list[RecoveryMode]) -> None:
        super().__init__()
        self.modes = modes

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        choice = super().plan(victim, decider)
        self.modes.append(choice.mode)
        return choice


@pytest.mark.parametrize(("usual_s", "other_s"), [(FAST_S, SLOW_S), (SLOW_S / 2, FAST_S)])
def test_decisions_turn_over_within_twenty_where_the_link_changes(usual_s: float, other_s: float) -> None:
    """A victim has four blocks, so a probe's block costs a fifth of it or more: slower links are probed more rarely."""
    after, model = 20, learner(ChangingLink(FAST_S, FAST_S, after=1))
    costs = ChangingLink(usual_s, usual_s, after=after, other_s=other_s)
    policy = Noting(costs.modes)
    hardware = replace(machine(), costs=costs)
    simulate(2 * CALM, hardware, limits(num_blocks=22, max_num_seqs=4), policy, learner=model)
    before, later = costs.modes[10:after], costs.modes[after:]
    usual, other = (RecoveryMode.SWAP, RecoveryMode.RECOMPUTE)[:: 1 if usual_s == FAST_S else -1]
    assert before.count(usual) >= 8, before
    assert len(later) > 30
    assert later[20:30].count(other) >= 8, later
