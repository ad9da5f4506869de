"""The plan of a model's stages: the layers left out at first, and the groups in which they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StagePlan:
    """All layers in `groups` of arrival; later ones are contiguous, and form one block. Else ValueError."""

    num_layers: int
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        layers = sorted(layer for group in self.groups for layer in group)
        if layers != list(range(self.num_layers)) or not all(self.groups):
            raise ValueError(f"the groups {self.groups} do not hold each of {self.num_layers} layers once")
        if any(list(group) != sorted(group) for group in self.groups):
            raise ValueError("the layers of a group must be in ascending order")
        block = sorted(layer for group in self.groups[1:] for layer in group)
        for run in (block, *self.groups[1:]):
            if list(run) != list(range(run[0], run[0] + len(run))) if run else False:
                raise ValueError(f"the layers {list(run)} are not contiguous; a plan leaves out one block")

    @property
    def num_stages(self) -> int:
        return len(self.groups)

    def layers_in_place(self, stage: int) -> tuple[int, ...]:
        """A stage's layers, ascending; stages count from 1."""
        return tuple(sorted(layer for group in self.groups[:stage] for layer in group))

    def layers_out(self, stage: int) -> tuple[int, ...]:
        return tuple(sorted(layer for group in self.groups[stage:] for layer in group))

    def to_dict(self) -> dict[str, Any]:
        return {"quire_plan": 1, "num_layers": self.num_layers, "groups": [list(group) for group in self.groups]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StagePlan:
        """Undo `to_dict`, ignoring further entries. Raises ValueError for an invalid plan."""
        if data.get("quire_plan") != 1:
            raise ValueError("this is not a plan of stages (quire_plan: 1); make one with `quire stages plan`")
        try:
            return cls(int(data["num_layers"]), tuple(tuple(map(int, group)) for group in data["groups"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a plan of stages: {error}") from None
