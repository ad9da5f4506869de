"""What a model computes with at a stage: layers, identities in the places of absent ones, and an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn


class PassLayer(nn.Module):
    """The identity in the place of a layer that is not there: neither computes nor touches the KV cache."""

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        return x


class Adapter(Protocol):
    """What a stage adds to the outputs of linear layers; the weights stay as they are."""

    digest: str  #: of its weights and its config

    def attach(self) -> None:
        """Have the model's linear layers add their parts of it. Any other adapter is detached first."""
        ...

    def detach(self) -> None:
        """Have them compute by their weights alone again."""
        ...


@dataclass(frozen=True, eq=False)
class ServableStage:
    """A stage in memory. The runner switches between two of them from one step to the next."""

    number: int  #: from 1
    layers: Sequence[nn.Module]  #: by index in the full model: layers, PassLayers, or the map in the gap
    adapter: Adapter | None = None
