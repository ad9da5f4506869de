"""Costs and failures of the link to one tier."""

from __future__ import annotations

from typing import Any

from quire.core.decisions.fits import has_changed
from quire.core.decisions.transfer_cost import TransferCost

_FAILING_AFTER = 3  #: consecutive failed transfers in one direction


class LinkCost:
    """Both directions of a link. They change together, unless one is seen to be unchanged."""

    def __init__(self) -> None:
        self.saves = TransferCost()
        self.loads = TransferCost()
        self._num_transfers = 0
        self._failures = {"save": 0, "load": 0}  #: consecutive, up to now
        self._latest_two = {"save": (0, 0), "load": (0, 0)}  #: by kind: numbers of the last two transfers

    @property
    def is_calibrated(self) -> bool:
        return self.saves.is_calibrated and self.loads.is_calibrated

    @property
    def is_usable(self) -> bool:
        """Whether both directions have been measured, and do not fail."""
        return self.is_calibrated and not (self.is_failing("save") or self.is_failing("load"))

    def is_failing(self, kind: str) -> bool:
        """Whether the last few transfers in one direction, "save" or "load", failed."""
        return self._failures[kind] >= _FAILING_AFTER

    def predict(self, kind: str, num_bytes: int) -> float:
        """Seconds that the link is busy with moving bytes in one direction."""
        return self._direction(kind).predict(num_bytes)

    def observe(self, kind: str, num_bytes: int, seconds: float, *, continues: bool) -> bool:
        """Record a transfer or a piece of one. Returns whether it shows that the link has changed."""
        cost = self._direction(kind)
        self._failures[kind] = 0
        self._num_transfers += 1
        self._latest_two[kind] = self._latest_two[kind][1], self._num_transfers
        cost.observe(num_bytes, seconds, continues=continues)
        side = has_changed([self.saves.misses, self.loads.misses], slower_after=4, faster_after=2)
        if side:
            self._follow(side)
        return bool(side)

    def observe_failure(self, kind: str) -> None:
        """Record a failed transfer. Its duration says nothing."""
        self._failures[kind] += 1

    def _follow(self, side: int) -> None:
        """Rescale the directions that have changed; one that was observed unchanged since stays."""
        for kind, other in (("save", "load"), ("load", "save")):
            direction, that = self._direction(kind), self._direction(other)
            if direction.misses.side != side:
                continue
            is_other_unseen = self._latest_two[other][1] < self._latest_two[kind][0]  # a first miss may be noise
            change = direction.follow()
            if is_other_unseen:
                that.rescale(change)

    def _direction(self, kind: str) -> TransferCost:
        if kind == "save":
            return self.saves
        if kind == "load":
            return self.loads
        raise ValueError(f"transfers are of kind 'save' or 'load', not {kind!r}")

    def to_dict(self) -> dict[str, Any]:
        return {"saves": self.saves.to_dict(), "loads": self.loads.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LinkCost:
        """The inverse of `to_dict`, without failures. ValueError, KeyError or TypeError if the data is invalid."""
        link = cls()
        link.saves = TransferCost.from_dict(data["saves"])
        link.loads = TransferCost.from_dict(data["loads"])
        return link
