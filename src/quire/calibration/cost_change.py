"""Whether a cost model has learnt anything since it was kept, beyond what measurements scatter.

Knows neither files nor when one should be written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import StepShape

_SCATTERS = 2.0  #: from which on a difference is none of chance: a prediction rests on several measurements
_LEAST_SCATTER = 0.02  #: log ratio; clocks and bins are no finer
_LEAST_S = 1e-9  #: keeps logarithms defined


def has_learnt(model: CostModel, kept: CostModel) -> bool:
    """Whether a model knows better than an earlier state of it.

    It does where it is calibrated and the other was not, and where it predicts a step or a transfer that it has
    measured otherwise, by more than twice what single measurements scatter around its own predictions.
    """
    if model.is_calibrated and not kept.is_calibrated:
        return True
    learnt = model.to_dict()
    steps = [(StepShape(*shape), seconds) for *shape, seconds, _ in learnt["steps"]["observations"]]
    by_shape = [(model.step(shape).seconds, kept.step(shape).seconds, seconds) for shape, seconds in steps]
    saves = [(model.save(size).seconds, kept.save(size).seconds, s) for size, s, _ in learnt["saves"]["observations"]]
    loads = [(model.load(size).seconds, kept.load(size).seconds, s) for size, s, _ in learnt["loads"]["observations"]]
    return any(_differ(each) for each in (by_shape, saves, loads))


def _differ(compared: Sequence[tuple[float, float, float]]) -> bool:
    """Of (predicted now, predicted then, measured), whether any two predictions differ by more than scatter."""
    if not compared:
        return False
    scatter = 1.4826 * median(_log_ratio(measured, now) for now, _, measured in compared)  # a standard deviation
    threshold = _SCATTERS * max(scatter, _LEAST_SCATTER)
    return any(_log_ratio(now, then) > threshold for now, then, _ in compared)


def _log_ratio(one: float, other: float) -> float:
    return abs(math.log(max(one, _LEAST_S) / max(other, _LEAST_S)))
