"""What moving bytes to and from one tier costs, learnt from transfers, and whether they arrive."""

from __future__ import annotations

from typing import Any

from quire.core.decisions.change_detector import has_changed
from quire.core.decisions.transfer_cost import TransferCost

_FAILING_AFTER = 3  #: transfers one way, one after the other, that did not arrive whole


class LinkCost:
    """Both ways of the link to one tier. They change together, unless one of them is seen to go on as it was."""

    def __init__(self) -> None:
        self.saves = TransferCost()
        self.loads = TransferCost()
        self._num_transfers = 0
        self._failures = {"save": 0, "load": 0}  #: in a row, up to now
        self._latest_two = {"save": (0, 0), "load": (0, 0)}  #: by kind: which transfers were the last but one, the last

    @property
    def is_calibrated(self) -> bool:
        return self.saves.is_calibrated and self.loads.is_calibrated

    @property
    def is_usable(self) -> bool:
        """Whether both ways have been measured, and bring what is given to them."""
        return self.is_calibrated and not (self.is_failing("save") or self.is_failing("load"))

    def is_failing(self, kind: str) -> bool:
        """Whether the last few transfers one way, "save" or "load", did not arrive whole: until the next one does."""
        return self._failures[kind] >= _FAILING_AFTER

    def predict(self, kind: str, num_bytes: int) -> float:
        """Seconds that the link is busy with moving bytes one way."""
        return self._way(kind).predict(num_bytes)

    def observe(self, kind: str, num_bytes: int, seconds: float, *, continues: bool) -> bool:
        """Take in a transfer, or a piece of one. Returns whether it showed that the link has changed."""
        cost = self._way(kind)
        self._failures[kind] = 0
        self._num_transfers += 1
        self._latest_two[kind] = self._latest_two[kind][1], self._num_transfers
        cost.observe(num_bytes, seconds, continues=continues)
        side = has_changed([self.saves.misses, self.loads.misses], slower_after=4, faster_after=2)
        if side:
            self._follow(side)
        return bool(side)

    def observe_failure(self, kind: str) -> None:
        """Take in a transfer that did not arrive whole: how long it took says nothing."""
        self._failures[kind] += 1

    def _follow(self, side: int) -> None:
        """Both ways have changed, but one that was seen since to be as before."""
        for kind, other in (("save", "load"), ("load", "save")):
            way, that = self._way(kind), self._way(other)
            if way.misses.side != side:
                continue
            is_other_unseen = self._latest_two[other][1] < self._latest_two[kind][0]  # a first miss may be noise
            change = way.follow()
            if is_other_unseen:
                that.rescale(change)

    def _way(self, kind: str) -> TransferCost:
        if kind == "save":
            return self.saves
        if kind == "load":
            return self.loads
        raise ValueError(f"transfers are of kind 'save' or 'load', not {kind!r}")

    def to_dict(self) -> dict[str, Any]:
        return {"saves": self.saves.to_dict(), "loads": self.loads.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LinkCost:
        """The inverse of `to_dict`; what failed is forgotten.

        Raises:
            ValueError, KeyError, TypeError: it is not one.
        """
        link = cls()
        link.saves = TransferCost.from_dict(data["saves"])
        link.loads = TransferCost.from_dict(data["loads"])
        return link
