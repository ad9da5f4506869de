"""Costs of a larger model: another machine's costs with slower steps."""

from __future__ import annotations

from dataclasses import replace

from quire.core.decisions.costs import Costs, StepShape
from quire.simulate.hardware import HardwareProfile


class SlowedCosts:
    """Costs whose steps take `factor` times as long, with unchanged links."""

    def __init__(self, costs: Costs, factor: float) -> None:
        self._costs = costs
        self.factor = factor  #: may change at any time

    @property
    def is_link_usable(self) -> bool:
        return self._costs.is_link_usable

    def step(self, shape: StepShape) -> float:
        return self.factor * self._costs.step(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self.factor * self._costs.recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._costs.save(num_bytes, tier)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._costs.load(num_bytes, tier)


def slowed(profile: HardwareProfile, factor: float) -> HardwareProfile:
    """A profile whose steps take `factor` times as long."""
    return replace(profile, name=f"{profile.name} × {factor:g}", costs=SlowedCosts(profile.costs, factor))
