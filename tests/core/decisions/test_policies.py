"""Recovery policies, one rule at a time: whom they preempt, and by which mode the victim is to come back."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.core.decisions.eviction_stats import EvictionStats
from quire.core.decisions.recovery_cost import CandidateCosts
from quire.core.decisions.recovery_interface import MAX_PREEMPTIONS
from quire.core.decisions.recovery_log import RecoveryLog
from quire.core.decisions.recovery_policies import (
    Candidate,
    Cost,
    Preemption,
    Recompute,
    RecoveryMode,
    RecoveryPolicy,
    Swap,
    SystemState,
    Threshold,
    make_policy,
)
from quire.core.request import Request
from quire.sampling_params import SamplingParams
from quire.simulate.hardware import cps_paper

BLOCK = 16
BLOCK_BYTES = 1000
DECODING = StepShape(4, 4, 0.0, 2000)


class Once(EvictionStats):
    """Nobody is preempted a second time."""

    again = 0.0  # type: ignore[assignment]


STATE = SystemState(
    block_size=BLOCK, block_bytes=BLOCK_BYTES, chunk_beside=512 - DECODING.num_tokens, free_slots=10_000,
    queued_bytes=0, beside=DECODING, eviction_stats=Once(),
)  # fmt: skip


LARGE_BLOCKS = replace(STATE, block_bytes=600_000)


def candidate(
    num_tokens: int = 160,
    *,
    name: str = "r",
    preempted: int = 0,
    width: int = 1,
    num_shared: int = 0,
    saved: Iterable[int] = (),
    idle: Iterable[int] = (),
    gap: range = range(0),
) -> Candidate:
    """One that holds all its blocks but the first `num_shared` alone.

    Args:
        saved: places of blocks that the swap tier has.
        idle: of these, those that nobody keeps there.
    """
    request = Request(name, [1], SamplingParams(n=width))
    request.num_preemptions = preempted
    full = num_tokens // BLOCK
    to_save = set(range(num_shared, full)) - set(saved) - set(gap)
    return Candidate(request, num_tokens, num_shared, count_from(to_save, full), count_from(set(idle), full), gap)


def count_from(places: set[int], num_blocks: int) -> tuple[int, ...]:
    return tuple(sum(place >= at for place in places) for at in range(num_blocks + 1))


class FlatCosts:
    """So many seconds a token and a byte."""

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
    """Swapping full blocks costs so many times what computing them again does, half of it each way."""
    each = 1e-3 * BLOCK / BLOCK_BYTES * swap_over_recompute / 2
    return FlatCosts(save=each, load=each)


# -- static policies --------------------------------------------------------------------------------------------------


def test_every_policy_takes_the_youngest() -> None:
    candidates = [candidate(100, name="old"), candidate(1000, name="young", preempted=50)]
    for policy in (Recompute(), Swap(), Threshold(512), Threshold(512, swap_above=True), Cost(flat(1.0))):
        assert policy.choose(candidates, STATE).victim is candidates[-1].request


def mode_of(policy: RecoveryPolicy, one: Candidate, state: SystemState = STATE) -> RecoveryMode:
    return policy.choose([one], state).mode


def test_a_threshold_swaps_up_to_it_and_computes_above_or_the_other_way_round() -> None:
    below, at, above = candidate(1008), candidate(1024), candidate(1025)
    assert [mode_of(Threshold(1024), one) for one in (below, at, above)] == [
        RecoveryMode.SWAP,
        RecoveryMode.SWAP,
        RecoveryMode.RECOMPUTE,
    ]
    reverse = Threshold(1024, swap_above=True)
    assert [mode_of(reverse, one) for one in (below, at, above)] == [
        RecoveryMode.RECOMPUTE,
        RecoveryMode.RECOMPUTE,
        RecoveryMode.SWAP,
    ]


def test_nobody_swaps_without_room_or_without_anything_to_swap() -> None:
    full_tier = replace(STATE, free_slots=9)
    for policy in (Swap(), Threshold(1024), Cost(flat(0.1))):
        assert mode_of(policy, candidate(160)) is RecoveryMode.SWAP
        assert mode_of(policy, candidate(160, width=2), full_tier) is RecoveryMode.RECOMPUTE
        assert mode_of(policy, candidate(160, saved=[0]), full_tier) is RecoveryMode.SWAP
        assert mode_of(policy, candidate(15)) is RecoveryMode.RECOMPUTE
        assert mode_of(policy, candidate(160, num_shared=10)) is RecoveryMode.RECOMPUTE
        assert mode_of(policy, candidate(160, saved=range(10)), replace(STATE, free_slots=0)) is RecoveryMode.SWAP


def test_what_the_tier_has_of_a_victim_is_no_room_for_the_rest_of_it() -> None:
    full_tier = replace(STATE, free_slots=9)  # three of them have its own blocks
    for policy in (Swap(), Threshold(1024), Cost(flat(0.1), mixed_margin=1.0)):
        assert mode_of(policy, candidate(160, saved=range(3)), full_tier) is RecoveryMode.SWAP
        assert mode_of(policy, candidate(160, saved=range(3), idle=range(3)), full_tier) is RecoveryMode.RECOMPUTE
    modes = CandidateCosts(flat(0.1), candidate(160, saved=range(3), idle=range(3)), full_tier)
    assert modes.mixed(1) is not None, "the first is not kept"
    assert modes.mixed(0) is None


def test_policies_are_made_by_name() -> None:
    model = CostModel()
    assert isinstance(make_policy("recompute", None), Recompute)
    assert isinstance(make_policy("swap", None), Swap)
    threshold, reverse = make_policy("threshold:1024", None), make_policy("threshold:512:swap-above", None)
    assert isinstance(threshold, Threshold)
    assert (threshold.num_tokens, threshold.swap_above) == (1024, False)
    assert isinstance(reverse, Threshold)
    assert (reverse.num_tokens, reverse.swap_above) == (512, True)
    cost = make_policy("cost", model)
    assert isinstance(cost, Cost)
    assert cost.costs is model


@pytest.mark.parametrize(
    "text",
    ["", "lifo", "threshold", "threshold:", "threshold:x", "threshold:-1", "threshold:1:2", "threshold:1:swap-above:",
     "swap:1", "cost:1", "recompute:", "threshold:²"],
)  # fmt: skip
def test_a_policy_that_does_not_exist_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="recovery_policy"):
        make_policy(text, CostModel())


def test_cost_needs_a_model() -> None:
    with pytest.raises(ValueError, match="cost model"):
        make_policy("cost", None)


# -- what modes cost --------------------------------------------------------------------------------------------------


def test_the_modes_of_a_request_add_up() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    modes = CandidateCosts(costs, candidate(168), STATE)  # 10 full blocks and 8 tokens
    swap, mixed = modes.swap(), modes.mixed(4)
    assert swap is not None
    assert mixed is not None
    assert modes.recompute().spent == pytest.approx(0.168)
    assert swap.spent == pytest.approx(0.020 + 0.030 + 0.008)
    assert mixed.spent == pytest.approx(0.064 + 0.012 + 0.018 + 0.008)
    assert mixed.back_after == pytest.approx(max(0.064, 0.018) + 0.012 + 0.008)


def test_what_others_hold_comes_back_by_no_mode_and_what_is_saved_is_not_saved_again() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    modes = CandidateCosts(costs, candidate(168, num_shared=4, saved=range(4, 8)), STATE)
    swap = modes.swap()
    assert swap is not None
    assert modes.recompute().spent == pytest.approx(0.168 - 0.064)
    assert swap.spent == pytest.approx(2 * 0.002 + 6 * 0.003 + 0.008)


@pytest.mark.parametrize(("saved", "to_save"), [(range(4), 6), (range(2, 6), 4), (range(6, 10), 2)])
def test_what_a_mixed_mode_has_to_save_depends_on_which_blocks_the_tier_has(saved: Iterable[int], to_save: int) -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    modes = CandidateCosts(costs, candidate(160, saved=saved), STATE)
    mixed = modes.mixed(4)
    assert mixed is not None
    assert mixed.spent == pytest.approx(0.064 + to_save * 0.002 + 6 * 0.003)


def test_where_the_back_is_saved_already_the_mixed_mode_may_save_nothing() -> None:
    costs = FlatCosts(token=1e-3, save=1e-4, load=1e-6)  # to save a block takes as long as to compute six
    best = CandidateCosts(costs, candidate(160, saved=range(7, 10)), STATE).best_mixed()
    assert best is not None
    assert best.keep_from == 7
    assert best.spent == pytest.approx(7 * 0.016 + 3 * 0.001)


def test_what_is_not_there_yet_is_computed_by_every_mode() -> None:
    """A victim that was coming back: two blocks are there, two are to be computed, and four are being loaded."""
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    one = candidate(128, saved=range(4, 8), gap=range(2, 4))
    for state in (STATE, lost(1)):
        modes = CandidateCosts(costs, one, state)
        assert modes.swap() is None
        assert modes.mixed(3) is None
        mixed, best = modes.mixed(4), modes.best_mixed()
        assert mixed is not None
        assert best is not None
        assert best.keep_from >= 4
    assert mixed.spent == pytest.approx(0.032 + 4 * 0.003), "of the first four, two are found again"
    assert modes.recompute().spent == pytest.approx(6 * 0.016), "however few blocks others lose"


def lost(*counts: int) -> SystemState:
    """Where so many blocks were gone of requests that came back."""
    eviction_stats = EvictionStats()
    for count in counts:
        eviction_stats.observe(1000, count)
    return replace(STATE, eviction_stats=eviction_stats)


def test_only_what_will_be_lost_costs_to_bring_back() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    modes = CandidateCosts(costs, candidate(168), lost(2))  # 10 full blocks, of which 8 stay
    swap, tail = modes.swap(), modes.mixed(8)
    assert swap is not None
    assert tail is not None
    assert modes.recompute().spent == pytest.approx(0.032 + 0.008)
    assert swap.spent == pytest.approx(0.020 + 0.006 + 0.008), "all is saved, and little loaded"
    assert tail.spent == pytest.approx(0.004 + 0.006 + 0.008)
    best = modes.best_mixed()
    assert best is not None
    assert best.keep_from == 8


def test_costs_are_means_over_what_may_be_lost() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    modes = CandidateCosts(costs, candidate(160), lost(2, 6))
    middle = modes.mixed(6)  # four blocks saved
    assert middle is not None
    assert modes.recompute().spent == pytest.approx(4 * 0.016)
    loaded, computed = (2 + 4) / 2, (0 + 2) / 2
    assert middle.spent == pytest.approx(4 * 0.002 + loaded * 0.003 + computed * 0.016)


def test_where_little_is_lost_little_is_saved() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    assert mode_of(Cost(costs), candidate(1600)) is RecoveryMode.SWAP
    choice = Cost(costs).choose([candidate(1600)], lost(9, 10, 11, 10))
    assert choice.mode is RecoveryMode.MIXED
    assert 100 - 11 <= choice.keep_from <= 100 - 9


def test_a_save_is_worth_more_where_requests_are_preempted_again() -> None:
    costs = FlatCosts(token=1e-3, save=1e-5, load=8e-6)  # computing a block takes 16 ms, swapping it 18
    assert mode_of(Cost(costs), candidate(160)) is RecoveryMode.RECOMPUTE
    thrashing = replace(STATE, eviction_stats=EvictionStats())
    for _ in range(60):
        thrashing.eviction_stats.observe_preemption(is_repeated=True)
    assert mode_of(Cost(costs), candidate(160), thrashing) is RecoveryMode.SWAP
    swap = CandidateCosts(costs, candidate(160), thrashing).swap()
    assert swap is not None
    assert swap.spent == pytest.approx(0.18), "what it takes now is what it takes"


def test_a_load_waits_behind_what_the_link_has_to_do() -> None:
    costs = FlatCosts(token=1e-3, save=2e-6, load=3e-6)
    busy = replace(STATE, queued_bytes=100 * BLOCK_BYTES)
    idle_swap, busy_swap = (CandidateCosts(costs, candidate(160), state).swap() for state in (STATE, busy))
    assert idle_swap is not None
    assert busy_swap is not None
    assert busy_swap.spent == idle_swap.spent
    assert busy_swap.back_after == pytest.approx(idle_swap.back_after + 0.3)
    assert mode_of(Cost(costs), candidate(160)) is RecoveryMode.SWAP
    assert mode_of(Cost(costs), candidate(160), busy) is RecoveryMode.RECOMPUTE


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 60), st.integers(0, 15), st.integers(0, 5), st.integers(0, 60), st.integers(0, 200),
    st.floats(1e-6, 1e-2), st.floats(1e-9, 1e-4), st.floats(1e-9, 1e-4), st.booleans(),
)  # fmt: skip
def test_the_mixed_mode_is_the_best_of_all_splits_at_which_computing_and_loading_meet(
    full: int, tail: int, shared: int, queued: int, num_saved: int, token: float, save: float, load: float,
    is_front_saved: bool,
) -> None:  # fmt: skip
    saved = range(num_saved) if is_front_saved else range(max(0, full - num_saved), full)
    costs = FlatCosts(token=token, save=save, load=load)
    one = candidate(full * BLOCK + tail, num_shared=min(shared, full), saved=saved)
    modes = CandidateCosts(costs, one, replace(STATE, queued_bytes=queued * BLOCK_BYTES))
    best = modes.best_mixed()
    splits = [modes.mixed(at) for at in range(modes.first + 1, full)]
    if best is None:
        assert not splits
        return
    assert modes.first < best.keep_from < full
    fastest = min(split.back_after for split in splits if split is not None)
    pure = [modes.recompute().back_after] + [swap.back_after for swap in (modes.swap(),) if swap is not None]
    if fastest < min(pure):  # else an end is best, which is no mixed mode
        assert best.back_after == pytest.approx(fastest)


# -- cost: modes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "mode"), [(0.3, RecoveryMode.SWAP), (3.0, RecoveryMode.RECOMPUTE)])
def test_cost_takes_the_cheaper_mode(ratio: float, mode: RecoveryMode) -> None:
    decision = Cost(flat(ratio)).choose([candidate(1600)], STATE)
    assert decision.mode is mode
    assert decision.predicted["recompute"] == pytest.approx(1.6)
    assert decision.predicted["swap"] == pytest.approx(1.6 * ratio)


def test_near_the_crossing_a_request_comes_back_by_both_modes_at_once() -> None:
    decision = Cost(flat(1.0)).choose([candidate(1600)], STATE)
    assert decision.mode is RecoveryMode.MIXED
    assert 0 < decision.keep_from < 100
    assert decision.predicted["mixed"] == pytest.approx(1.6)  # spends what either would, and is back sooner
    front, back = decision.keep_from * BLOCK * 1e-3, (100 - decision.keep_from) * BLOCK * 1e-3 / 2
    assert front == pytest.approx(back, abs=0.03)


def test_a_mixed_mode_is_for_requests_with_one_sequence() -> None:
    assert Cost(flat(1.0)).choose([candidate(1600, width=2)], STATE).mode is not RecoveryMode.MIXED


def test_a_mixed_mode_that_spends_more_is_not_taken() -> None:
    # Balanced, it would be back in 0.86 of the time, and keep link and steps busy for 1.29 of it.
    assert Cost(flat(1.5)).choose([candidate(1600)], STATE).mode is RecoveryMode.RECOMPUTE


def test_the_paper_table_decides_as_its_rows_say() -> None:
    state = replace(STATE, block_bytes=BLOCK * cps_paper().bytes_per_token, chunk_beside=8192, beside=StepShape(0, 0))
    policy = Cost(cps_paper().costs, mixed_margin=1.0)
    assert mode_of(policy, candidate(512), state) is RecoveryMode.SWAP
    assert mode_of(policy, candidate(2048), state) is RecoveryMode.RECOMPUTE


CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.integers(10 * BLOCK, 300 * BLOCK),
        preempted=st.integers(0, MAX_PREEMPTIONS - 1),
        width=st.integers(1, 3),
        num_shared=st.integers(0, 10),
        saved=st.sets(st.integers(0, 300)),
        idle=st.sets(st.integers(0, 9)),
    ),
    min_size=1,
    max_size=12,
)
STATES = st.builds(
    SystemState,
    block_size=st.sampled_from((1, 16, 32)),
    block_bytes=st.integers(0, 10**7),
    chunk_beside=st.integers(1, 4096),
    free_slots=st.integers(0, 300),
    queued_bytes=st.integers(0, 10**9),
    beside=st.builds(StepShape, st.integers(0, 512), st.integers(0, 64), st.floats(0, 1e6), st.integers(0, 10**5)),
)


def warm_model(seed: int = 1, bandwidth: float = 150e6) -> CostModel:
    rng, model = random.Random(seed), CostModel()
    for count in range(200):
        shape = StepShape(8, 8, 0.0, 8 * (100 + count)) if count % 4 else StepShape(0, 0).plus_chunk(0, 64 + count)
        seconds = 0.02 + 4e-4 * shape.num_tokens + 1e-6 * shape.context_decode
        model.observe_step(shape, seconds * rng.uniform(0.9, 1.1))
        num_bytes = rng.randint(1, 100) * 600_000
        model.observe_transfer(("save", "load")[count % 2], num_bytes, 2e-3 + num_bytes / bandwidth)
    return model


@settings(max_examples=60, deadline=None)
@given(
    CANDIDATES,
    st.lists(STATES, min_size=1, max_size=6),
    st.sampled_from(("recompute", "swap", "threshold:500", "threshold:500:swap-above", "cost", "cost-cold", "table")),
)
def test_every_policy_always_chooses_something_possible(
    candidates: list[Candidate], states: list[SystemState], name: str
) -> None:
    policy: RecoveryPolicy
    if name == "table":
        policy = Cost(cps_paper().costs)
    elif name.startswith("cost"):
        policy = make_policy("cost", CostModel() if name == "cost-cold" else warm_model())
    else:
        policy = make_policy(name, None)
    for state in states:
        choice = policy.choose(candidates, state)
        chosen = next(c for c in candidates if c.request is choice.victim)
        assert all(seconds >= 0.0 for seconds in choice.predicted.values())
        if choice.mode is RecoveryMode.SWAP:
            not_shared = chosen.num_full_blocks - chosen.num_shared
            assert not_shared > 0
            assert chosen.has_room(0, state.free_slots)
        if choice.mode is RecoveryMode.MIXED:
            assert chosen.request.width == 1
            assert chosen.num_shared < choice.keep_from < chosen.num_full_blocks
            assert chosen.has_room(choice.keep_from, state.free_slots)
        if isinstance(policy, Cost):
            assert choice.mode.value in choice.predicted


# -- cost: learning ---------------------------------------------------------------------------------------------------


class Life:
    """Preemptions one after the other, on a machine whose link can be set, told to the model as they come."""

    def __init__(self, bandwidth: float, *, num_tokens: int = 800, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.bandwidth = bandwidth
        self.num_tokens = num_tokens
        self.model = CostModel()
        self.policy = Cost(self.model)
        self.state = replace(STATE, block_bytes=36_864 * BLOCK, beside=StepShape(8, 8, 0.0, 4000))
        self.count = 0
        self.errors: list[float] = []  #: of predictions, relative
        self._loads: list[int] = []

    def seconds(self, shape: StepShape) -> float:
        return 0.02 + 3e-4 * shape.num_tokens + 2e-8 * shape.attended + 5e-7 * shape.context_decode

    def noisy(self, seconds: float) -> float:
        return seconds * self.random.gauss(1.0, 0.08) * (3.0 if self.random.random() < 0.03 else 1.0)

    def transfer(self, kind: str, num_blocks: int) -> float:
        num_bytes = num_blocks * self.state.block_bytes
        seconds = self.noisy(1e-3 + num_bytes / self.bandwidth)
        self.model.observe_transfer(kind, num_bytes, seconds)
        return seconds

    def compute(self, num_tokens: int, start: int = 0) -> float:
        return num_tokens * 3e-4 + 2e-8 * num_tokens * (start + num_tokens / 2)

    def preempt(self) -> Preemption:
        for _ in range(8):
            shape = StepShape(8, 8, 0.0, 4000)
            self.model.observe_step(shape, self.noisy(self.seconds(shape)))
        chunk = StepShape(7, 7, 0.0, 3500).plus_chunk(0, self.random.randint(100, 500))
        self.model.observe_step(chunk, self.noisy(self.seconds(chunk)))
        while self._loads:
            self.transfer("load", self._loads.pop())
        self.count += 1
        one = candidate(self.num_tokens, name=str(self.count))
        choice = self.policy.choose([one], self.state)
        if choice.mode is RecoveryMode.RECOMPUTE:
            actual = self.compute(self.num_tokens)
        else:
            num_blocks = one.num_full_blocks - choice.keep_from
            saved = self.transfer("save", num_blocks)
            self._loads.append(num_blocks)
            front = self.compute(choice.keep_from * BLOCK)
            actual = 2 * saved + front
        self.errors.append(abs(choice.predicted[choice.mode.value] - actual) / actual)
        return choice

    def preempt_until(self, mode: RecoveryMode, share: int = 1) -> int:
        """How many preemptions it takes until so many in a row take a mode."""
        in_a_row = 0
        for count in range(1, 200):
            in_a_row = in_a_row + 1 if self.preempt().mode is mode else 0
            if in_a_row == share:
                return count
        raise AssertionError(f"{mode} is never taken")


def test_a_link_that_is_not_worth_it_is_tried_again_ever_more_rarely() -> None:
    for costs in (flat(9.0), CostModel()):
        policy = Cost(costs)
        modes = [mode_of(policy, candidate(1600)) for _ in range(100)]
        tries = [at for at, mode in enumerate(modes) if mode is RecoveryMode.SWAP]
        assert tries[:6] == [2, 7, 16, 33, 50, 67]
        assert mode_of(policy, candidate(15)) is RecoveryMode.RECOMPUTE, "nothing to try it with"


def test_a_link_that_fails_gets_no_more_than_tries() -> None:
    for kind in ("save", "load"):
        model = warm_model(bandwidth=5e9)
        assert mode_of(Cost(model), candidate(1600), LARGE_BLOCKS) is RecoveryMode.SWAP
        while not model.is_failing(kind):
            model.observe_failure(kind)
        modes = [mode_of(Cost(model), candidate(1600), LARGE_BLOCKS) for _ in range(10)]
        assert modes == [RecoveryMode.RECOMPUTE] * 10


@pytest.mark.parametrize("seed", range(5))
def test_decisions_turn_over_within_twenty_preemptions_of_a_change_and_back(seed: int) -> None:
    life = Life(600e6, seed=seed)
    for _ in range(100):
        life.preempt()
    assert life.preempt().mode is RecoveryMode.SWAP
    life.bandwidth /= 10
    assert life.preempt_until(RecoveryMode.RECOMPUTE) <= 20
    for _ in range(60):
        life.preempt()
    life.bandwidth *= 10
    assert life.preempt_until(RecoveryMode.SWAP) <= 20


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
        log.give_up(1, 100, Preemption(candidate(name=name).request, RecoveryMode.SWAP, predicted={"swap": 1.0}), [])
        if fell_back:
            log.note_fallback(name)
        log.note_compute(name, 0.5)
        log.complete(name)
    assert [recovery.outcome for recovery in log.over] == ["fell back", "swap"]
    assert [recovery.error for recovery in log.over] == [None, 1.0]
    stats = log.take_stats()
    assert stats is not None
    assert stats.errors == [("swap", 1.0)]


# -- cost: the second look ---------------------------------------------------------------------------------------------


def test_what_was_saved_is_computed_where_the_link_has_become_slow_since() -> None:
    costs = FlatCosts(token=1e-3, load=1.6e-5)  # a block takes 16 ms either way
    policy = Cost(costs)
    assert policy.is_worth_loading(0, 160, STATE)
    costs.per_byte["load"] = 3e-5
    assert not policy.is_worth_loading(0, 160, STATE)
    costs.per_byte["load"] = 1e-5
    assert policy.is_worth_loading(0, 160, STATE)
    assert policy.is_worth_loading(0, 160, replace(STATE, queued_bytes=100 * BLOCK_BYTES)), "nobody else waits for it"


def test_what_is_being_saved_is_given_up_where_saving_and_loading_take_longer_than_computing() -> None:
    costs = FlatCosts(token=1e-3, save=0.8e-5, load=0.8e-5)  # a block takes 16 ms by either mode
    policy = Cost(costs)
    assert policy.is_worth_saving(0, 160, STATE)
    costs.per_byte["save"] = 2e-5
    assert not policy.is_worth_saving(0, 160, STATE)
    again = EvictionStats()
    for _ in range(50):
        again.observe_preemption(is_repeated=True)
    assert policy.is_worth_saving(0, 160, replace(STATE, eviction_stats=again)), (
        "it will be of use more often than once"
    )


def test_the_second_look_computes_beside_what_goes_on() -> None:
    chunks: set[int] = set()

    class Noting(FlatCosts):
        def recompute(
            self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None
        ) -> float:
            chunks.add(chunk)
            return super().recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    policy = Cost(Noting(load=1e-6))
    policy.is_worth_loading(0, 160, STATE)
    assert chunks == {512 - DECODING.num_tokens}
    mode_of(policy, candidate(160))
    assert len(chunks) == 1, "the first look does so too"
