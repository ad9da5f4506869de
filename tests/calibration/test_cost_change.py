"""What is worth keeping of a cost model: what it knows better than before, and not what is noise."""

from __future__ import annotations

import random

import pytest

from quire.calibration.cost_change import has_learnt
from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import EMPTY_STEP, StepShape

NOISE = 0.1  #: of single measurements, relative


def teach(
    model: CostModel, seed: int, *, slowness: float = 1.0, link: float = 1.0, times: int = 20, longest: int = 512
) -> CostModel:
    """Show a model steps of 10 ms and 0.1 ms a token, and transfers of 1 ms and 1 ns a byte."""
    source = random.Random(seed)
    for _ in range(times):
        for n in (16, 64, 256, longest):
            noise = source.gauss(1.0, NOISE)
            model.observe_step(EMPTY_STEP.plus_chunk(0, n), slowness * (0.01 + 1e-4 * n) * noise)
            model.observe_step(StepShape(8, 8, 0.0, 8 * n), slowness * 0.011 * source.gauss(1.0, NOISE))
            for kind in ("save", "load"):
                model.observe_transfer(kind, 1000 * n, link * (1e-3 + 1e-6 * n) * source.gauss(1.0, NOISE))
    return model


def copy(model: CostModel) -> CostModel:
    return CostModel.from_dict(model.to_dict())


@pytest.fixture(scope="module")
def kept() -> CostModel:
    return teach(CostModel(), 1)


def test_noise_is_nothing_new(kept: CostModel) -> None:
    assert not has_learnt(copy(kept), kept)
    num_changed = sum(has_learnt(teach(copy(kept), seed), kept) for seed in range(2, 32))
    assert num_changed <= 3  # of 30: twice the scatter is not infinity


@pytest.mark.parametrize("factor", [0.4, 1.5, 10.0])
def test_a_machine_or_a_link_that_has_changed_is(kept: CostModel, factor: float) -> None:
    assert has_learnt(teach(copy(kept), 2, slowness=factor), kept)
    assert has_learnt(teach(copy(kept), 2, link=factor), kept)


def test_a_length_that_was_only_guessed_is_new_once_it_was_measured(kept: CostModel) -> None:
    model = copy(kept)
    for _ in range(20):
        model.observe_step(EMPTY_STEP.plus_chunk(0, 4096), 2.0)  # the straight line says 0.42 s
    assert has_learnt(model, kept)


def test_a_model_that_is_no_guess_any_more_is_new() -> None:
    model = teach(CostModel(), 1, times=2)
    guess = CostModel()
    for n in (16, 64):
        guess.observe_step(EMPTY_STEP.plus_chunk(0, n), 0.01 + 1e-4 * n)
    assert model.is_calibrated
    assert has_learnt(model, guess)
    assert not has_learnt(CostModel(), CostModel())
