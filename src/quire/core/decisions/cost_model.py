"""The cost model predicts steps and transfers from all earlier measurements. It starts from crude priors
(`is_calibrated`), knows no clock, file or request, and belongs to one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quire.core.decisions.costs import TIERS, StepShape
from quire.core.decisions.fits import has_changed
from quire.core.decisions.link_cost import LinkCost
from quire.core.decisions.step_cost import StepCost

VERSION = 3  #: of `to_dict`

_READ_BYTES = 8 << 20  #: a usual read from disk
_PRIOR_DECODE_S = 1e-9
_DECODE_WEIGHT = 0.1  #: of the last piece
_SHORTEST_S = 1e-9  #: counts for a clock that stands still


class CostModel:
    """`Costs` that learn from every step and transfer; `num_refreshes` counts changes. Several misses on one side show
    a change, by which all older measurements are then rescaled."""

    def __init__(self) -> None:
        self.steps = StepCost()
        self.links = {tier: LinkCost() for tier in TIERS}
        self.stored_share = 1.0  #: size of all blocks on disk by their plain size
        self.decode_s_per_byte = _PRIOR_DECODE_S  #: for each byte that coding has saved
        self.num_refreshes = 0
        #: By model stage: its share of layers, and its step costs. 0 is the whole model.
        self._stages: dict[int, tuple[float, StepCost]] = {0: (1.0, self.steps)}
        self._stage = 0

    def enter_stage(self, stage: int, share: float) -> None:
        """Predict and learn another model stage's steps from now on. Until they are measured, they take `share` (of the
        full model's layers) of the whole model's, or in proportion of the stage before's."""
        if stage not in self._stages:
            known, steps = self._stages[0 if self._stages[0][1].is_calibrated else self._stage]
            self._stages[stage] = share, steps.scaled(share / known)
        self._stage, self.steps = stage, self._stages[stage][1]

    @contextmanager
    def at_stage(self, stage: int) -> Iterator[None]:
        """Predict and learn for a stage that was entered before."""
        usual, self.steps = self.steps, self._stages.get(stage, (1.0, self.steps))[1]
        try:
            yield
        finally:
            self.steps = usual

    def take_over(self, costs: dict[str, Any]) -> None:
        """Replace all measurements by another model's (`to_dict`); counts stay."""
        other = CostModel.from_dict(costs)
        self.steps, self.links = other.steps, other.links
        self._stages, self._stage = {0: (1.0, self.steps)}, 0

    @property
    def is_calibrated(self) -> bool:
        """Whether steps and both directions of the swap link have been measured often enough."""
        return self.steps.is_calibrated and self.links["host"].is_calibrated

    @property
    def is_link_usable(self) -> bool:
        """Whether both directions of the swap link have been measured, and do not fail."""
        return self.links["host"].is_usable

    def is_failing(self, kind: str, tier: str = "host") -> bool:
        """Whether the last few transfers in one direction, "save" or "load", failed."""
        return self.links[tier].is_failing(kind)

    def step(self, shape: StepShape) -> float:
        """Seconds of a step; 0 for one without tokens."""
        return self.steps.seconds(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds that computing tokens [start, start + num_tokens) adds to steps: see `Costs.recompute`."""
        return self.steps.recompute(num_tokens, start, chunk, beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that a link is busy with saving bytes to a tier."""
        return self.links[tier].predict("save", num_bytes)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds to load blocks of a plain size from a tier, decoding included."""
        if tier != "disk":
            return self.links[tier].predict("load", num_bytes)
        stored = round(num_bytes * self.stored_share)
        return self.links[tier].predict("load", stored) + (num_bytes - stored) * self.decode_s_per_byte

    @property
    def pays_to_code(self) -> bool:
        """Whether loads show that decoding takes less time than reading the bytes that it saves."""
        loads = self.links["disk"].loads
        return loads.is_calibrated and loads.predict(_READ_BYTES) > _READ_BYTES * self.decode_s_per_byte

    def observe_step(self, shape: StepShape, seconds: float) -> None:
        """Record a step. Steps without tokens, or without finite seconds, are ignored."""
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
        """Record a link's busy seconds for a run of blocks, or a further piece of one (`continues`). Ignores 0 bytes
        and seconds that are not finite; ValueError for a `kind` other than save and load."""
        if num_bytes <= 0 or not 0.0 <= seconds < math.inf:
            return
        has_changed = self.links[tier].observe(kind, num_bytes, max(seconds, _SHORTEST_S), continues=continues)
        self.num_refreshes += has_changed

    def observe_decoding(self, saved_bytes: int, seconds: float) -> None:
        """Record the decoding of a piece of a load; ignores one without coded blocks."""
        if saved_bytes > 0 and 0.0 < seconds < math.inf:
            self.decode_s_per_byte += _DECODE_WEIGHT * (seconds / saved_bytes - self.decode_s_per_byte)

    def observe_failure(self, kind: str, tier: str = "host") -> None:
        """Record a failed transfer, "save" or "load". Its duration says nothing."""
        self.links[tier].observe_failure(kind)

    def to_dict(self) -> dict[str, Any]:
        """The measurements as plain numbers, lists and dicts."""
        return {
            "version": VERSION,
            "steps": self.steps.to_dict(),
            "links": {tier: link.to_dict() for tier, link in self.links.items()},
        }

    @classmethod
    def from_dict(cls, data: Any) -> CostModel:
        """The inverse of `to_dict`, but for rounding. ValueError if the data is no cost model of this version."""
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
