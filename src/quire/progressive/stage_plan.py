"""The plan of a model's stages: the layers or mantissa bits left out at first, and the groups in which they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.loading.stage_manifest import WHOLE_BITS, check_bits


@dataclass(frozen=True)
class StagePlan:
    """All layers in `groups` of arrival; later ones are contiguous, and form one block. With `mantissa_bits`, weights
    are stored as planes; if these are not all 7, a last stage completes all layers. Layers may have `layer_bits` of
    their own; `mantissa_bits` are then those of all other weights. Else ValueError."""

    num_layers: int
    groups: tuple[tuple[int, ...], ...]
    mantissa_bits: int | None = None
    layer_bits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_bits(self.mantissa_bits, self.layer_bits, self.num_layers)
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
    def has_rest(self) -> bool:
        """Return whether the last stage completes mantissas."""
        return self.mantissa_bits is not None and min(self.mantissa_bits, *self.layer_bits, WHOLE_BITS) < WHOLE_BITS

    def bits_of(self, layer: int | None) -> int:
        """The mantissa bits of a layer, or of what is outside layers, before the last stage."""
        whole = WHOLE_BITS if self.mantissa_bits is None else self.mantissa_bits
        return self.layer_bits[layer] if self.layer_bits and layer is not None else whole

    @property
    def num_stages(self) -> int:
        return len(self.groups) + self.has_rest

    def adds(self, stage: int) -> tuple[int, ...]:
        """The layers that a stage adds or completes."""
        return self.groups[stage - 1] if stage <= len(self.groups) else tuple(range(self.num_layers))

    def layers_in_place(self, stage: int) -> tuple[int, ...]:
        """A stage's layers, ascending; stages count from 1."""
        return tuple(sorted(layer for group in self.groups[:stage] for layer in group))

    def layers_out(self, stage: int) -> tuple[int, ...]:
        return tuple(sorted(layer for group in self.groups[stage:] for layer in group))

    @property
    def block_out(self) -> tuple[int, int] | None:
        """The layers [start, end) that stage 1 leaves out."""
        out = self.layers_out(1)
        return (out[0], out[-1] + 1) if out else None

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "quire_plan": 1,
            "num_layers": self.num_layers,
            "groups": [list(group) for group in self.groups],
        }
        values |= {} if self.mantissa_bits is None else {"mantissa_bits": self.mantissa_bits}
        return values | ({"layer_bits": list(self.layer_bits)} if self.layer_bits else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StagePlan:
        """Undo `to_dict`, ignoring further entries. Raises ValueError for an invalid plan."""
        if data.get("quire_plan") != 1:
            raise ValueError("this is not a plan of stages (quire_plan: 1); make one with `quire stages plan`")
        try:
            bits = data.get("mantissa_bits")
            groups = tuple(tuple(map(int, group)) for group in data["groups"])
            layer_bits = tuple(map(int, data.get("layer_bits", ())))
            return cls(int(data["num_layers"]), groups, None if bits is None else int(bits), layer_bits)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a plan of stages: {error}") from None
