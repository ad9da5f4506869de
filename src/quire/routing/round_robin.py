"""The policy `round-robin`: each model in its turn, whatever is asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from quire.routing.policy import NOTHING_KNOWN, Choice, RoutingContext


class RoundRobinPolicy:
    """Models take turns in the order in which they were named.

    Args:
        models: served names by role.
    """

    name = "round-robin"

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = list(models.items())
        self._turns = itertools.count()  # next() of it is atomic

    def choose(self, question: str, context: RoutingContext = NOTHING_KNOWN) -> Choice:
        turn = next(self._turns) % len(self._models)
        role, model = self._models[turn]
        why = f"its turn, {turn + 1} of {len(self._models)}"
        return Choice(model, self.name, why, {"turn": float(turn)}, role)
