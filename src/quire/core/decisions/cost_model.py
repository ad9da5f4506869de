"""Measured costs: every step and every transfer teaches, every prediction is compared with what came.

The engine tells the model what things took; recovery asks it what they would take. Starts from crude priors, is usable
at once and says so (`is_calibrated`). One thread only. Knows no clock, no file and no request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quire.core.decisions.change_detector import has_changed
from quire.core.decisions.costs import TIERS, StepShape, find_crossings
from quire.core.decisions.link_cost import LinkCost
from quire.core.decisions.step_cost import StepCost

VERSION = 3  #: of `to_dict`

_SHORTEST_S = 1e-9  #: clocks that stand still count as this


class CostModel:
    """Predicts steps, recomputing and transfers (`Costs`) from what steps and transfers have taken so far.

    Errors of its own predictions are remembered from when it is calibrated. Where several in a row miss on one side,
    the machine or a link has changed: then everything that is older is rescaled by that change, at once
    (`num_refreshes` counts).
    """

    def __init__(self) -> None:
        self.steps = StepCost()
        self.links = {tier: LinkCost() for tier in TIERS}
        self.num_refreshes = 0
        #: By stage of the model, the share of its layers that are there, and what steps take; 0 is the whole model.
        self._stages: dict[int, tuple[float, StepCost]] = {0: (1.0, self.steps)}
        self._stage = 0

    def enter_stage(self, stage: int, share: float) -> None:
        """Predict and learn the steps of another stage of the model from now on. Transfers stay what they are.

        Args:
            stage: its number.
            share: of the full model's layers, that it has. Until steps tell, they take in proportion to it what those
                of the whole model took in earlier runs, or else those of the stage before.
        """
        if stage not in self._stages:
            known, steps = self._stages[0 if self._stages[0][1].is_calibrated else self._stage]
            self._stages[stage] = share, steps.scaled(share / known)
        self._stage, self.steps = stage, self._stages[stage][1]

    @contextmanager
    def at_stage(self, stage: int) -> Iterator[None]:
        """Predict and learn as of a stage that was entered before."""
        usual, self.steps = self.steps, self._stages.get(stage, (1.0, self.steps))[1]
        try:
            yield
        finally:
            self.steps = usual

    def take_over(self, costs: dict[str, Any]) -> None:
        """Believe from now on what another model did (`to_dict`); what this one has counted stays."""
        other = CostModel.from_dict(costs)
        self.steps, self.links = other.steps, other.links
        self._stages, self._stage = {0: (1.0, self.steps)}, 0

    @property
    def is_calibrated(self) -> bool:
        """Whether steps and both ways of swapping have been measured often enough to be more than a guess."""
        return self.steps.is_calibrated and self.links["host"].is_calibrated

    @property
    def is_link_usable(self) -> bool:
        """Whether both ways of swapping have been measured, and bring what is given to them."""
        return self.links["host"].is_usable

    def is_failing(self, kind: str, tier: str = "host") -> bool:
        """Whether the last few transfers one way, "save" or "load", did not arrive whole: until the next one does."""
        return self.links[tier].is_failing(kind)

    # -- predicting ----------------------------------------------------------------------------------------------

    def step(self, shape: StepShape) -> float:
        """Seconds of a step; one without tokens takes none."""
        return self.steps.seconds(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds that computing tokens [start, start + num_tokens) adds, in chunks of at most `chunk` tokens.

        The difference of the steps with and without them. A last chunk of one token counts as prefill. Without
        anything `beside`, the steps are there for these tokens alone and count whole.
        """
        return self.steps.recompute(num_tokens, start, chunk, beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link is busy with taking bytes to a tier."""
        return self.links[tier].predict("save", num_bytes)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link is busy with bringing bytes back."""
        return self.links[tier].predict("load", num_bytes)

    def crossing_points(
        self, bytes_per_token: int, max_tokens: int, *, granularity: int = 16, chunk: int | None = None
    ) -> list[int]:
        """Token counts at which the cheaper of swap and recompute changes (`find_crossings`)."""
        return find_crossings(self, bytes_per_token, max_tokens, granularity=granularity, chunk=chunk)

    # -- learning ------------------------------------------------------------------------------------------------

    def observe_step(self, shape: StepShape, seconds: float) -> None:
        """Take in a step that was executed. One without tokens, or whose seconds are no number, teaches nothing."""
        if shape.num_tokens <= 0 or not 0.0 <= seconds < math.inf:
            return
        steps = self.steps
        steps.observe(shape, seconds if seconds > _SHORTEST_S else _SHORTEST_S)
        if steps.misses.misses and has_changed([steps.misses], slower_after=8, faster_after=4):
            steps.follow()
            self.num_refreshes += 1

    def observe_transfer(
        self, kind: str, num_bytes: int, seconds: float, *, continues: bool = False, tier: str = "host"
    ) -> None:
        """Take in a run of blocks that was moved, or a piece of one.

        Args:
            kind: "save" or "load".
            num_bytes: of the run. None, or seconds that are no number, teach nothing.
            seconds: that the link was busy with it.
            continues: the run of the last piece of this kind.
            tier: where from, or where to.

        Raises:
            ValueError: another kind.
        """
        if num_bytes <= 0 or not 0.0 <= seconds < math.inf:
            return
        has_changed = self.links[tier].observe(kind, num_bytes, max(seconds, _SHORTEST_S), continues=continues)
        self.num_refreshes += has_changed

    def observe_failure(self, kind: str, tier: str = "host") -> None:
        """Take in a transfer, "save" or "load", that did not arrive whole: how long it took says nothing."""
        self.links[tier].observe_failure(kind)

    # -- keeping -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """What it has learnt, as plain numbers, lists and dicts."""
        return {
            "version": VERSION,
            "steps": self.steps.to_dict(),
            "links": {tier: link.to_dict() for tier, link in self.links.items()},
        }

    @classmethod
    def from_dict(cls, data: Any) -> CostModel:
        """The inverse of `to_dict`; predictions are the same but for rounding, errors and seconds start anew.

        Raises:
            ValueError: it is not a cost model, or of another version.
        """
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError(f"this is no cost model of version {VERSION}")
        model = cls()
        try:
            model.steps = StepCost.from_dict(data["steps"])
            model._stages = {0: (1.0, model.steps)}
            model.links = {tier: LinkCost.from_dict(data["links"][tier]) for tier in TIERS}
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"this is no cost model: {error}") from error
        return model
