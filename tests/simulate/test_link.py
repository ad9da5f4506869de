"""What the link does in a simulated run: all of it is counted, and little of it is for the sake of knowing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import EMPTY_STEP, Prediction, StepShape
from quire.core.recovery.policies import Cost, RecoveryMode, make_policy
from quire.outputs import TransferReport
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from quire.simulate.virtual_runner import VirtualLink
from simulate.machines import BLOCK_BYTES, ExactCosts, limits, machine

FAST_S, SLOW_S = 0.02, 0.2  #: of a block, one way; computing it again adds 0.25 s to steps
CROWD = [Arrival(0.0, 8 + at % 5, 30 + at % 7) for at in range(40)]
CROWDS = [[Arrival(0.0, 8 + (at + k) % 5, 30 + at * (k + 1) % 7) for at in range(40)] for k in range(6)]
CALM = [Arrival(0.0, 4 + at % 3, 36 - at % 7) for at in range(30)]


def learner() -> CostModel:
    """What the fast machine would have taught."""
    costs, model = ExactCosts(FAST_S, FAST_S), CostModel()
    for count in (1, 2, 4, 8, 16) * 8:
        for shape in (StepShape(count, count, 0.0, 20 * count), EMPTY_STEP.plus_chunk(0, count)):
            model.observe_step(shape, costs.step(shape).seconds)
        for kind in ("save", "load"):
            model.observe_transfer(kind, count * BLOCK_BYTES, count * FAST_S)
    return CostModel.from_dict(model.to_dict())  # its engine has not run yet


def run(policy: str, load: Sequence[Arrival] = CROWD, **given: int | bool) -> SimulationFigures:
    model = learner()
    hardware = machine(save_s=FAST_S, load_s=FAST_S)
    return simulate(load, hardware, limits(**given), make_policy(policy, model), learner=model)


@pytest.fixture
def link_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of everything that the link does."""
    taken: list[float] = []
    take_ended = VirtualLink.take_ended

    def noting(self: VirtualLink, now: float) -> list[TransferReport]:
        reports = take_ended(self, now)
        taken.extend(report.copy_s for report in reports)
        return reports

    monkeypatch.setattr(VirtualLink, "take_ended", noting)
    return taken


@pytest.mark.parametrize(
    ("policy", "write_through"), [("recompute", False), ("swap", False), ("swap", True), ("cost", False)]
)
def test_whatever_the_link_did_counts_as_recovery(policy: str, write_through: bool, link_s: list[float]) -> None:
    found = run(policy, num_blocks=40, swap_write_through=write_through)
    assert found.num_preemptions > 10
    assert found.save_s + found.load_s + found.ahead_s == pytest.approx(sum(link_s))
    assert found.recovery_s == pytest.approx(sum(link_s) + found.recompute_s)
    assert (found.ahead_s > 0) == (write_through or policy == "cost")


def test_samples_take_a_hundredth_of_the_time_at_most() -> None:
    found = run("cost", num_blocks=40)
    assert 0 < found.ahead_s <= 0.01 * found.compute_s


def test_nobody_looks_at_the_link_where_blocks_are_never_short(link_s: list[float]) -> None:
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
    """After so many steps it is as slow, or as fast, as the other one."""

    after: int = 0
    other_s: float = SLOW_S
    count: list[int] = field(default_factory=lambda: [0])

    def step(self, shape: StepShape) -> Prediction:
        self.count[0] += 1
        return super().step(shape)

    def save(self, num_bytes: int) -> Prediction:
        seconds = self.other_s if self.count[0] >= self.after else self.save_s
        return Prediction(num_bytes / BLOCK_BYTES * seconds)

    load = save


@pytest.mark.parametrize(("usual_s", "other_s"), [(FAST_S, SLOW_S), (SLOW_S, FAST_S)])
def test_decisions_turn_over_within_five_where_the_link_changes(usual_s: float, other_s: float) -> None:
    after, model = 120, learner()
    policy = make_policy("cost", model)
    assert isinstance(policy, Cost)
    hardware = replace(machine(), costs=ChangingLink(usual_s, usual_s, after=after, other_s=other_s))
    simulate(CALM, hardware, limits(num_blocks=22, max_num_seqs=4), policy, learner=model)
    before = [decision.mode for decision in policy.decisions if decision.step_id < after]
    later = [decision.mode for decision in policy.decisions if decision.step_id >= after]
    usual = RecoveryMode.SWAP if usual_s == FAST_S else RecoveryMode.RECOMPUTE
    assert before[-6:].count(usual) >= 5, before
    assert len(later) > 10
    assert usual not in later[5:10], later
