"""When the link is looked at for its own sake, and what that may cost."""

from __future__ import annotations

import pytest

from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import StepShape
from quire.core.recovery.exploration import Prober
from quire.core.recovery.interface import Candidate, RecoveryMode, SystemState
from quire.core.recovery.recovery_cost import CandidateCosts
from quire.core.request import Request
from quire.sampling_params import SamplingParams

BLOCK_BYTES = 1000
STEP_S = 0.05
DECODING = StepShape(4, 4, 0.0, 2000)


def prober_of(model: CostModel, *, every: int = 8, recovery_seconds: float = 1e3) -> Prober:
    prober = Prober(model, 0.01, every, seed=0)
    prober.recovery_seconds = recovery_seconds
    return prober


def model_of(block_s: float, *, num_steps: int = 0) -> CostModel:
    """One that knows the link, which takes so long for a block, and has run a while."""
    model = CostModel()
    for num_blocks in (1, 2, 4, 6, 8, 16, 32) * 8:
        for kind in ("save", "load"):
            model.observe_transfer(kind, num_blocks * BLOCK_BYTES, num_blocks * block_s)
    for _ in range(num_steps):
        model.observe_step(DECODING, STEP_S)
    return model


def modes_of(model: CostModel, num_blocks: int = 64) -> CandidateCosts:
    request = Request("r", [1], SamplingParams())
    to_save = tuple(range(num_blocks, -1, -1))
    candidate = Candidate(request, 16 * num_blocks, num_blocks, 0, to_save, (0,) * (num_blocks + 1))
    state = SystemState(16, BLOCK_BYTES, 512, 1000, 0, DECODING, 1)
    return CandidateCosts(model, candidate, state)


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("block_s", "at_most"), [(1e-3, 50), (0.01, 50), (0.03, 17)])
def test_an_idle_link_is_looked_at_once_a_second_for_a_hundredth_of_its_time(block_s: float, at_most: int) -> None:
    model = model_of(block_s)
    prober, num_samples, link_s = prober_of(model), 0, model.link_seconds
    for _ in range(1000):  # 50 s
        model.observe_step(DECODING, STEP_S)
        if num_blocks := prober.sample_size(BLOCK_BYTES):
            prober.note_sample(num_blocks * BLOCK_BYTES)
            model.observe_transfer("save", num_blocks * BLOCK_BYTES, num_blocks * block_s)
            num_samples += 1
    assert 0.8 * at_most <= num_samples <= at_most
    assert model.link_seconds - link_s <= 0.01 * 50 * 1.05
    assert prober.sampling_seconds == pytest.approx(model.link_seconds - link_s, rel=0.1)


@pytest.mark.parametrize(("block_s", "num_blocks"), [(1e-5, 16), (1.2e-3, 5), (0.1, 1)])
def test_a_sample_takes_no_longer_than_it_needs_to_be_seen_beside_the_waking_of_a_thread(
    block_s: float, num_blocks: int
) -> None:
    model = model_of(block_s)
    prober = prober_of(model)
    sizes = []
    for _ in range(400):
        model.observe_step(DECODING, STEP_S)
        sizes.append(prober.sample_size(BLOCK_BYTES))
    assert sizes[-1] == num_blocks


def test_a_link_in_use_is_not_looked_at() -> None:
    model = CostModel()
    prober = prober_of(model)
    for _ in range(200):
        model.observe_step(DECODING, STEP_S)
        model.observe_transfer("load", BLOCK_BYTES, 1e-5)
        assert prober.sample_size(BLOCK_BYTES) == 0


def test_a_surprise_is_looked_at_again_at_once_with_no_more_than_it_takes() -> None:
    model = model_of(1e-3)
    prober = prober_of(model)
    assert prober.sample_size(BLOCK_BYTES) == 0, "there has just been one"
    for _ in range(800):
        model.observe_step(DECODING, STEP_S)
    sizes = []
    while num_blocks := prober.sample_size(BLOCK_BYTES):  # the link has become thirty times slower
        prober.note_sample(num_blocks * BLOCK_BYTES)
        model.observe_transfer("save", num_blocks * BLOCK_BYTES, 0.03 * num_blocks)
        sizes.append(num_blocks)
    assert sizes == [6, 1, 1, 1], "as many as make it a change"
    assert model.load(BLOCK_BYTES).seconds == pytest.approx(0.03, rel=0.3)
    assert prober.sampling_seconds == pytest.approx(0.03 * sum(sizes))


@pytest.mark.parametrize(("arrives", "most"), [(True, 6), (False, 9)])
def test_one_slow_load_is_followed_by_one_sample_and_then_by_one_a_second(arrives: bool, most: int) -> None:
    model = model_of(1e-3, num_steps=1000)
    prober, tried_at = prober_of(model), []
    prober.sample_size(BLOCK_BYTES)
    model.observe_transfer("load", 8 * BLOCK_BYTES, 8 * 0.03)
    for number in range(100):  # 5 s
        model.observe_step(DECODING, STEP_S)
        if num_blocks := prober.sample_size(BLOCK_BYTES):
            prober.note_sample(num_blocks * BLOCK_BYTES)
            if arrives:
                model.observe_transfer("save", num_blocks * BLOCK_BYTES, num_blocks * 1e-3)
            else:
                model.observe_failure("save")
            tried_at.append(number)
    assert tried_at[0] == 0, "at once"
    assert 3 <= len(tried_at) <= most, "and then once a second"


def test_a_sample_that_does_not_arrive_is_not_followed_by_another_at_once() -> None:
    model = model_of(1e-3, num_steps=200)
    prober, tried_at = prober_of(model), []
    prober.sample_size(BLOCK_BYTES)
    for number in range(200):  # 10 s
        model.observe_step(DECODING, STEP_S)
        if num_blocks := prober.sample_size(BLOCK_BYTES):
            prober.note_sample(num_blocks * BLOCK_BYTES)
            model.observe_failure("save")
            tried_at.append(number)
    assert 5 <= len(tried_at) <= 10
    assert prober.sampling_seconds <= 0.01 * model.engine_seconds


def test_samples_cost_no_more_than_a_share_of_what_recovery_does() -> None:
    model = model_of(1e-3, num_steps=2000)  # 100 s
    assert prober_of(model, recovery_seconds=0.0).sample_size(BLOCK_BYTES) == 0, "nobody has been preempted yet"
    prober = prober_of(model, recovery_seconds=1.0)
    prober.sample_size(BLOCK_BYTES)
    for _ in range(1000):
        model.observe_step(DECODING, STEP_S)
        if num_blocks := prober.sample_size(BLOCK_BYTES):
            prober.note_sample(num_blocks * BLOCK_BYTES)
            model.observe_transfer("save", num_blocks * BLOCK_BYTES, num_blocks * 1e-3)
    assert 0.01 <= prober.sampling_seconds <= 0.021


def test_what_surprises_have_cost_may_be_spent_on_avoiding_them() -> None:
    model = model_of(1e-3, num_steps=2000)
    prober = prober_of(model, recovery_seconds=0.0)
    prober.sample_size(BLOCK_BYTES)
    for _ in range(100):
        model.observe_step(DECODING, STEP_S)
    assert prober.sample_size(BLOCK_BYTES) == 0
    prober.surprise_seconds = 0.3
    assert prober.sample_size(BLOCK_BYTES) > 0


# -- one account -------------------------------------------------------------------------------------------------------


def probe(prober: Prober, model: CostModel) -> float:
    """What a preemption that computes adds to the account of the link."""
    before = prober.seconds(RecoveryMode.SWAP)
    prober.propose(modes_of(model), RecoveryMode.RECOMPUTE, seconds=1.0)
    return prober.seconds(RecoveryMode.SWAP) - before


def test_probes_and_samples_of_the_link_share_one_account() -> None:
    model = model_of(1e-3, num_steps=100)  # 5 s, of which 50 ms are for the link
    untouched, sampled = prober_of(model, every=1), prober_of(model, every=1)
    sampled.note_sample(45 * BLOCK_BYTES)
    assert sum(probe(untouched, model) for _ in range(20)) == pytest.approx(0.05, abs=0.002)
    assert sum(probe(sampled, model) for _ in range(20)) == pytest.approx(0.005, abs=0.002)
    for _ in range(40):  # 2 s more are 20 ms for the link
        model.observe_step(DECODING, STEP_S)
    sum(probe(untouched, model) for _ in range(20))
    assert untouched.sample_size(BLOCK_BYTES) == 0, "the probes have had it all"


def test_whether_blocks_come_back_again_is_told_by_a_probe() -> None:
    model = model_of(1e-3, num_steps=1000)
    prober = prober_of(model, every=1000)
    assert prober.propose(modes_of(model), RecoveryMode.RECOMPUTE, 1.0) is None
    for _ in range(3):
        model.observe_failure("load")
    model.observe_transfer("save", BLOCK_BYTES, 1e-3)
    found = prober.propose(modes_of(model), RecoveryMode.RECOMPUTE, 1.0)
    assert found is not None
    assert found.probes is RecoveryMode.SWAP
