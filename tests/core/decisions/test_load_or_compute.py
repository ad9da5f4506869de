"""Decisions one rule at a time: blocks to save, to load, and to cancel."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs, StepShape
from quire.core.decisions.load_or_compute import (
    DELAY_WEIGHT,
    SPLIT_GAIN,
    RecoveryMode,
    RecoveryPlan,
    Victim,
)
from quire.core.decisions.recovery_log import PROBE_SHARE, STALE_AFTER, RecoveryLog
from quire.core.decisions.recovery_policy import Cost, Recompute, RecoveryPolicy, Swap, make_policy
from quire.core.request import Request
from quire.core.scheduler import Scheduler
from quire.outputs import TransferReport
from quire.sampling_params import SamplingParams
from quire.simulate.hardware import cps_paper
from quire.simulate.paper_policies import Threshold, make_compared_policy
from victims import BLOCK, BLOCK_BYTES, decider_of, preempt_again, victim_of


class FlatCosts:
    """Constant seconds per token and per byte."""

    def __init__(self, *, token: float = 1e-3, save: float = 0.0, load: float = 0.0) -> None:
        self.token, self.per_byte = token, {"save": save, "load": load}

    is_link_usable = True

    def step(self, shape: StepShape) -> float:
        return 0.01 + self.token * shape.num_tokens

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self.token * num_tokens

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self.per_byte["save"] * num_bytes

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self.per_byte["load"] * num_bytes


def flat(swap_over_recompute: float) -> FlatCosts:
    """Swapping costs this multiple of recomputing, half of it in each direction."""
    each = 1e-3 * BLOCK / BLOCK_BYTES * swap_over_recompute / 2
    return FlatCosts(save=each, load=each)


# -- policies ---------------------------------------------------------------------------------------------------------


def mode_of(policy: RecoveryPolicy, victim: Victim, costs: Costs | None = None) -> RecoveryMode:
    return policy.plan(victim, decider_of(costs or flat(1.0))).mode


def test_every_policy_preempts_the_youngest() -> None:
    requests = [Request(name, [1], SamplingParams()) for name in ("old", "young")]
    for policy in (Recompute(), Swap(), Threshold(512), Cost()):
        assert policy.choose_victim(requests) is requests[-1]


def test_a_threshold_swaps_up_to_it_and_recomputes_above_or_the_other_way_round() -> None:
    victims = [victim_of(1008), victim_of(1024), victim_of(1025)]
    swap, recompute = RecoveryMode.SWAP, RecoveryMode.RECOMPUTE
    assert [mode_of(Threshold(1024), victim) for victim in victims] == [swap, swap, recompute]
    assert [mode_of(Threshold(1024, swap_above=True), victim) for victim in victims] == [recompute, recompute, swap]


@pytest.mark.parametrize("policy", [Swap(), Threshold(1024), Cost()])
def test_nothing_is_swapped_without_room_or_without_anything_to_swap(policy: RecoveryPolicy) -> None:
    cheap = flat(0.1)
    assert mode_of(policy, victim_of(160), cheap) is RecoveryMode.SWAP
    assert mode_of(policy, victim_of(160, width=2, free_slots=9), cheap) is RecoveryMode.RECOMPUTE
    assert mode_of(policy, victim_of(160, saved=[0], free_slots=9), cheap) is RecoveryMode.SWAP
    assert mode_of(policy, victim_of(15), cheap) is RecoveryMode.RECOMPUTE
    assert mode_of(policy, victim_of(160, num_shared=10), cheap) is RecoveryMode.RECOMPUTE
    assert mode_of(policy, victim_of(160, saved=range(10), free_slots=0), cheap) is RecoveryMode.SWAP


def test_policies_are_made_by_name() -> None:
    kinds = {"recompute": Recompute, "swap": Swap, "cost": Cost}
    assert all(type(make_policy(name)) is kind for name, kind in kinds.items())
    threshold, reverse = make_compared_policy("threshold:1024"), make_compared_policy("threshold:512:swap-above")
    assert isinstance(threshold, Threshold)
    assert (threshold.num_tokens, threshold.swap_above) == (1024, False)
    assert isinstance(reverse, Threshold)
    assert (reverse.num_tokens, reverse.swap_above) == (512, True)


@pytest.mark.parametrize(
    "text",
    ["", "lifo", "threshold", "threshold:", "threshold:x", "threshold:-1", "threshold:1:2", "threshold:1:swap-above:",
     "swap:1", "cost:1", "recompute:", "threshold:²"],
)  # fmt: skip
def test_a_policy_that_does_not_exist_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="recovery_policy"):
        make_compared_policy(text)


def test_the_cost_policy_needs_costs() -> None:
    with pytest.raises(ValueError, match="needs costs"):
        Scheduler(SchedulerConfig(num_blocks=128), Cost())


# -- what is saved ----------------------------------------------------------------------------------------------------


def plan(costs: Costs, victim: Victim, *lost: int, **options: int) -> RecoveryPlan:
    """Plan for a victim that is equally likely to lose so many blocks; without any, all."""
    decider = decider_of(costs, **options)  # type: ignore[arg-type]
    return decider.plan_recovery(replace(victim, lost=lost))


def test_predictions_add_up() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    predicted = plan(costs, victim_of(168)).predicted  # 10 full blocks and 8 tokens
    assert predicted["recompute"] == pytest.approx(0.168)
    assert predicted["swap"] == pytest.approx(0.020 + 0.030 + 0.008)


def test_shared_blocks_are_not_brought_back_and_saved_ones_not_saved_again() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    predicted = plan(costs, victim_of(168, num_shared=4, saved=range(4, 8))).predicted
    assert predicted["recompute"] == pytest.approx(0.168 - 0.064)
    assert predicted["swap"] == pytest.approx(2 * 0.002 + 6 * 0.003 + 0.008)


def test_a_saved_back_may_be_kept_and_nothing_else_saved() -> None:
    costs = FlatCosts(token=1e-3, save=1e-4, load=1e-6)  # saving a block takes as long as computing six
    found = plan(costs, victim_of(160, saved=range(7, 10)))
    assert (found.mode, found.keep_from) == (RecoveryMode.MIXED, 7)
    assert found.predicted["mixed"] == pytest.approx(7 * 0.016 + 3 * 0.001)


def test_only_what_will_be_evicted_costs_to_bring_back() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    found = plan(costs, victim_of(168), 2)  # 10 full blocks, 8 of which stay
    assert found.predicted["recompute"] == pytest.approx(0.032 + 0.008)
    assert found.predicted["swap"] == pytest.approx(0.020 + 0.006 + 0.008), "all is saved, and little loaded"
    assert found.predicted["mixed"] == pytest.approx(0.004 + 0.006 + 0.008)
    assert found.keep_from == 8


def test_predictions_are_means_over_what_may_be_evicted() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    predicted = plan(costs, victim_of(160), 2, 6).predicted
    assert predicted["recompute"] == pytest.approx(4 * 0.016)
    assert predicted["swap"] == pytest.approx(10 * 0.002 + 4 * 0.003)


def test_where_little_is_evicted_little_is_saved() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    found = plan(costs, victim_of(1600), 9, 10, 11, 10)
    assert found.mode is RecoveryMode.MIXED
    assert 100 - 11 <= found.keep_from <= 100 - 9


def test_a_save_is_worth_more_where_requests_are_preempted_again() -> None:
    costs = FlatCosts(token=1e-3, save=1e-5, load=1.2e-5)  # computing a block takes 16 ms, swapping it 22
    decider = decider_of(costs)
    assert decider.plan_recovery(victim_of(160)).mode is not RecoveryMode.SWAP
    preempt_again(decider, 64)
    found = decider.plan_recovery(victim_of(160))
    assert found.mode is not RecoveryMode.RECOMPUTE
    assert found.predicted["swap"] == pytest.approx(0.22), "what it takes now is what it takes"


def test_a_load_waits_behind_the_queue_of_its_link() -> None:
    assert plan(flat(0.99), victim_of(160)).mode is not RecoveryMode.RECOMPUTE
    assert plan(flat(0.99), victim_of(160), queued=100).mode is RecoveryMode.RECOMPUTE, "as cheap, and sooner"
    assert plan(flat(0.9), victim_of(160), queued=100).mode is RecoveryMode.SWAP, "the cheaper way may take longer"


def test_saved_blocks_are_loaded_where_loading_takes_fewer_seconds() -> None:
    decider = decider_of(FlatCosts(token=1e-3, load=1.5e-5), beside=StepShape(4, 4, 0.0, 2000))
    assert decider.split_saved(2, ["host"] * 8) == 2
    decider = decider_of(FlatCosts(token=1e-3, load=1.7e-5), beside=StepShape(4, 4, 0.0, 2000))
    assert decider.split_saved(2, ["host"] * 8) == 10


@pytest.mark.parametrize(("ratio", "mode"), [(0.3, RecoveryMode.SWAP), (3.0, RecoveryMode.RECOMPUTE)])
def test_the_cheaper_mode_is_planned(ratio: float, mode: RecoveryMode) -> None:
    found = plan(flat(ratio), victim_of(1600, width=2))
    assert found.mode is mode
    assert found.predicted["recompute"] == pytest.approx(1.6)
    assert found.predicted["swap"] == pytest.approx(1.6 * ratio)


def test_near_the_crossing_a_part_is_saved_and_the_front_computed_while_it_loads() -> None:
    found = plan(flat(1.0), victim_of(1600))
    assert found.mode is RecoveryMode.MIXED
    front, back = found.keep_from * BLOCK * 1e-3, (100 - found.keep_from) * BLOCK * 1e-3 / 2
    assert front == pytest.approx(back, abs=0.03)
    assert plan(flat(1.0), victim_of(1600, width=2)).mode is not RecoveryMode.MIXED, "several tables have no front"


def test_computing_costs_more_where_it_delays_others() -> None:
    costs = FlatCosts(token=1e-3, save=0.5e-5, load=1e-5)
    alone, beside = decider_of(costs), decider_of(costs, beside=StepShape(4, 4, 0.0, 2000))
    block_s = 16e-3
    assert alone._cost_s(0, 1, [], 17) == pytest.approx(block_s + 1e-3)
    assert beside._delay_s(0, 16) == pytest.approx(DELAY_WEIGHT * block_s)
    assert alone._delay_s(0, 16) == 0.0


def test_the_paper_table_predicts_as_its_rows_say() -> None:
    paper = cps_paper()
    decider = decider_of(paper.costs, block_bytes=BLOCK * paper.bytes_per_token, chunk=8192)
    short, long = (decider.plan_recovery(victim_of(count)).predicted for count in (512, 2048))
    assert short["swap"] < short["recompute"]
    assert long["swap"] > long["recompute"]


def warm_model(seed: int = 1, bandwidth: float = 150e6) -> CostModel:
    rng, model = random.Random(seed), CostModel()
    for count in range(200):
        shape = StepShape(8, 8, 0.0, 8 * (100 + count)) if count % 4 else StepShape(0, 0).plus_chunk(0, 64 + count)
        seconds = 0.02 + 4e-4 * shape.num_tokens + 1e-6 * shape.context_decode
        model.observe_step(shape, seconds * rng.uniform(0.9, 1.1))
        num_bytes = rng.randint(1, 100) * 600_000
        model.observe_transfer(("save", "load")[count % 2], num_bytes, 2e-3 + num_bytes / bandwidth)
    return model


VICTIMS = st.builds(
    victim_of,
    st.integers(10 * BLOCK, 300 * BLOCK),
    width=st.integers(1, 3),
    num_shared=st.integers(0, 10),
    saved=st.sets(st.integers(0, 300)),
    free_slots=st.integers(0, 300),
)
BESIDE = st.builds(StepShape, st.integers(0, 512), st.integers(0, 64), st.floats(0, 1e6), st.integers(0, 10**5))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(VICTIMS, min_size=1, max_size=6), BESIDE, st.integers(1, 4096), st.integers(0, 500),
    st.lists(st.integers(0, 100), max_size=6),
    st.sampled_from(("recompute", "swap", "threshold:500", "threshold:500:swap-above", "cost", "cold", "table")),
)  # fmt: skip
def test_every_policy_always_plans_something_possible(
    victims: list[Victim], beside: StepShape, chunk: int, queued: int, lost: list[int], name: str
) -> None:
    costs: Costs = {"table": cps_paper().costs, "cold": CostModel()}.get(name) or warm_model()
    policy = Cost() if name in ("table", "cold") else make_compared_policy(name)
    decider = decider_of(costs, beside=beside, chunk=chunk, queued=queued)
    for victim in victims:
        num_freed = victim.num_full_blocks - victim.num_shared
        if victim.request.width == 1:
            victim = replace(victim, lost=sorted(min(count, num_freed) for count in lost))
        found = policy.plan(victim, decider)
        assert all(seconds >= 0.0 for seconds in found.predicted.values())
        if found.mode is not RecoveryMode.RECOMPUTE:
            assert victim.can_keep(found.keep_from)
        if found.mode is RecoveryMode.MIXED:
            assert victim.request.width == 1
            assert victim.num_shared < found.keep_from < victim.num_full_blocks
        if isinstance(policy, Cost):
            assert found.mode.value in found.predicted


# -- what is loaded ---------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 5), st.integers(0, 5), st.integers(1, 60), st.integers(1, 40), st.integers(0, 60),
    st.floats(1e-6, 1e-2), st.floats(1e-9, 1e-4),
)  # fmt: skip
def test_the_split_is_the_best_of_all(
    first: int, gap: int, count: int, rest: int, queued: int, token: float, load: float
) -> None:
    decider = decider_of(FlatCosts(token=token, load=load), queued=queued)
    start, tiers = first + gap, ["disk"] * count
    num_tokens = (start + count) * BLOCK + rest
    found = decider.split(first, start, tiers, num_tokens)
    costs = [decider._cost_s(first, at, tiers[at - start :], num_tokens) for at in range(start, start + count + 1)]
    assert costs[found - start] <= min(costs) / (1.0 - SPLIT_GAIN) + 1e-9


def test_without_costs_everything_is_loaded() -> None:
    assert decider_of(None).split(0, 3, ["host"] * 9, 200) == 3


def test_loads_that_have_become_slow_are_late() -> None:
    costs = FlatCosts(token=1e-3, load=1.6e-5)  # a block takes 16 ms by either way
    decider = decider_of(costs, queued=100)
    tiers = ["host"] * 10
    assert not decider.is_load_late(0, 160, tiers), "the queue delays no one else"
    costs.per_byte["load"] = 3e-5
    assert decider.is_load_late(0, 160, tiers)
    costs.per_byte["load"] = 1e-5
    assert not decider.is_load_late(0, 160, tiers)


def test_saves_are_late_where_saving_and_loading_take_longer_than_computing() -> None:
    costs = FlatCosts(token=1e-3, save=0.8e-5, load=0.8e-5)  # a block takes 16 ms by either mode
    decider = decider_of(costs)
    assert not decider.is_save_late(0, 10)
    costs.per_byte["save"] = 2e-5
    assert decider.is_save_late(0, 10)
    preempt_again(decider, 64)
    assert not decider.is_save_late(0, 10), "it will be of use more often than once"


def test_computing_is_predicted_beside_the_decoding_sequences() -> None:
    chunks: set[int] = set()

    class Noting(FlatCosts):
        def recompute(
            self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None
        ) -> float:
            chunks.add(chunk)
            return super().recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    decider = decider_of(Noting(load=1e-6), beside=StepShape(4, 4, 0.0, 2000))
    decider.is_load_late(0, 160, ["host"] * 10)
    decider.plan_recovery(victim_of(160))
    decider.split(0, 0, ["host"] * 10, 161)
    assert chunks == {512 - 4}


# -- cost: learning ---------------------------------------------------------------------------------------------------


class Life:
    """Successive preemptions on a machine with an adjustable link, reported to the model."""

    def __init__(self, bandwidth: float, *, num_tokens: int = 800, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.bandwidth = bandwidth
        self.num_tokens = num_tokens
        self.model = CostModel()
        self.policy = Cost()
        self.log = RecoveryLog()
        self.block_bytes = 36_864 * BLOCK
        self.decider = decider_of(self.model, block_bytes=self.block_bytes, beside=StepShape(8, 8, 0.0, 4000))
        self.count = 0
        self.errors: list[float] = []  #: relative error of predictions
        self._loads: list[int] = []

    def seconds(self, shape: StepShape) -> float:
        return 0.02 + 3e-4 * shape.num_tokens + 2e-8 * shape.attended + 5e-7 * shape.context_decode

    def noisy(self, seconds: float) -> float:
        return seconds * self.random.gauss(1.0, 0.08) * (3.0 if self.random.random() < 0.03 else 1.0)

    def transfer(self, kind: str, num_blocks: int) -> float:
        num_bytes = num_blocks * self.block_bytes
        seconds = self.noisy(1e-3 + num_bytes / self.bandwidth)
        self.model.observe_transfer(kind, num_bytes, seconds)
        self.log.record_transfers([TransferReport(kind, list(range(num_blocks)), num_bytes, seconds)])
        return seconds

    def compute(self, num_tokens: int, start: int = 0) -> float:
        return num_tokens * 3e-4 + 2e-8 * num_tokens * (start + num_tokens / 2)

    def preempt(self) -> RecoveryPlan:
        for _ in range(8):
            shape = StepShape(8, 8, 0.0, 4000)
            self.model.observe_step(shape, self.noisy(self.seconds(shape)))
        chunk = StepShape(7, 7, 0.0, 3500).plus_chunk(0, self.random.randint(100, 500))
        self.model.observe_step(chunk, self.noisy(self.seconds(chunk)))
        log, name = self.log, str(self.count)
        while self._loads:
            num_blocks = self._loads.pop()
            log.record_loads(log.open_record(name), range(num_blocks))
            self.transfer("load", num_blocks)
        log.close(name)
        self.count += 1
        name = str(self.count)
        one = victim_of(self.num_tokens, name=name)
        one = replace(one, probe_s=log.probe_budget_s, is_link_fresh=log.is_link_fresh)
        choice = self.policy.plan(one, self.decider)
        is_saved = choice.mode is not RecoveryMode.RECOMPUTE
        num_blocks = one.num_full_blocks - choice.keep_from if is_saved else 0
        log.open(name, self.count, self.num_tokens, choice, range(num_blocks))
        actual = self.compute(self.num_tokens - num_blocks * BLOCK)
        log.record_compute(name, actual)
        if is_saved:
            actual += 2 * self.transfer("save", num_blocks)
            self._loads.append(num_blocks)
        self.errors.append(abs(choice.predicted[choice.mode.value] - actual) / actual)
        return choice

    def preempt_until(self, *, is_recomputed: bool) -> int:
        """Count preemptions until one is recomputed, or not."""
        for count in range(1, 200):
            if (self.preempt().mode is RecoveryMode.RECOMPUTE) == is_recomputed:
                return count
        raise AssertionError("decisions never turn over")


def test_a_probe_saves_one_block_where_it_is_due_paid_for_and_possible() -> None:
    costs = flat(3.0)  # a block takes 16 ms to compute, 48 to swap
    victim = replace(victim_of(1600), probe_s=0.05, is_link_fresh=False)
    found = Cost().plan(victim, decider_of(costs))
    assert (found.mode, found.keep_from, found.is_probe) == (RecoveryMode.MIXED, 99, True)
    assert found.predicted["mixed"] == pytest.approx(99 * 0.016 + 0.048)
    for other in (
        replace(victim, probe_s=0.04),
        replace(victim, is_link_fresh=True),
        replace(victim, free_slots=0),
        replace(victim_of(1600, saved=[99]), probe_s=0.05, is_link_fresh=False),
        replace(victim_of(1600, width=2), probe_s=0.05, is_link_fresh=False),
        replace(victim_of(15), probe_s=0.05, is_link_fresh=False),
    ):
        assert not Cost().plan(other, decider_of(costs)).is_probe
    synchronous = decider_of(costs)
    synchronous._config = replace(synchronous._config, swap_is_synchronous=True)
    assert Cost().plan(victim, synchronous).mode is RecoveryMode.RECOMPUTE


def test_probes_take_at_most_their_share_of_the_seconds_of_recovery() -> None:
    log = RecoveryLog()
    assert log.is_link_fresh, "a profile has been measured"
    assert log.probe_budget_s == 0.0
    log.open("a", 1, 100, RecoveryPlan(RecoveryMode.RECOMPUTE), [])
    log.record_compute("a", 10.0)
    log.complete("a")
    assert log.probe_budget_s == pytest.approx(10.0 * PROBE_SHARE)
    log.open("b", 2, 100, RecoveryPlan(RecoveryMode.MIXED, 5, is_probe=True), [7])
    assert log.probe_budget_s == 0.0, "one at a time"
    log.record_transfers([TransferReport("save", [7], 1000, 0.25)])
    log.complete("b")
    assert log.probe_budget_s == pytest.approx(10.25 * PROBE_SHARE - 0.25)
    for count in range(STALE_AFTER):
        assert log.is_link_fresh
        log.open(f"c{count}", 3, 100, RecoveryPlan(RecoveryMode.RECOMPUTE), [])
    assert not log.is_link_fresh


def test_a_link_that_fails_gets_no_more_than_tries() -> None:
    for kind in ("save", "load"):
        model = warm_model(bandwidth=5e9)
        decider = decider_of(model, block_bytes=600_000)
        assert Cost().plan(victim_of(1600), decider).mode is RecoveryMode.SWAP
        while not model.is_failing(kind):
            model.observe_failure(kind)
        modes = [Cost().plan(victim_of(1600), decider).mode for _ in range(10)]
        assert modes == [RecoveryMode.RECOMPUTE] * 10


@pytest.mark.parametrize("seed", range(5))
def test_decisions_turn_over_within_twenty_preemptions_of_a_change_and_back(seed: int) -> None:
    life = Life(600e6, seed=seed)
    for _ in range(100):
        life.preempt()
    assert life.preempt().mode is not RecoveryMode.RECOMPUTE
    life.bandwidth /= 10
    assert life.preempt_until(is_recomputed=True) <= 20
    for _ in range(60):
        life.preempt()
    life.bandwidth *= 10
    assert life.preempt_until(is_recomputed=False) <= 20


def test_the_same_calls_decide_the_same() -> None:
    def play(bandwidth: float) -> list[tuple[RecoveryMode, int]]:
        life = Life(bandwidth)
        return [(choice.mode, choice.keep_from) for choice in (life.preempt() for _ in range(150))]

    assert play(300e6) == play(300e6)
    assert play(300e6) != play(30e6)


def test_predictions_of_decisions_are_good() -> None:
    life = Life(600e6)
    for _ in range(400):
        life.preempt()
    errors = sorted(life.errors)
    assert errors[len(errors) // 2] < 0.15
    assert errors[int(0.9 * len(errors))] < 0.4


def test_a_return_by_another_mode_than_the_chosen_one_tells_nothing_about_that() -> None:
    log = RecoveryLog()
    for name, fell_back in (("a", True), ("b", False)):
        log.open(name, 1, 100, RecoveryPlan(RecoveryMode.SWAP, predicted={"swap": 1.0}), [])
        if fell_back:
            log.record_fallback(name)
        log.record_compute(name, 0.5)
        log.complete(name)
    assert [recovery.outcome for recovery in log.closed] == ["fell back", "swap"]
    assert [recovery.error for recovery in log.closed] == [None, 1.0]
    stats = log.take_stats()
    assert stats is not None
    assert stats.errors == [("swap", 1.0)]
