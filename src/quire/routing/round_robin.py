"""The policy `round-robin`: each model in turn, whatever the question."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from quire.routing.policy import NO_CONTEXT, Choice, RoutingContext


class RoundRobinPolicy:
    """Alternate between models, given as served names by role."""

    name = "round-robin"

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = list(models.items())
        self._turns = itertools.count()  # its next() is atomic

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        turn = next(self._turns) % len(self._models)
        role, model = self._models[turn]
        why = f"its turn, {turn + 1} of {len(self._models)}"
        return Choice(model, self.name, why, {"turn": float(turn)}, role)
