"""A servable stage of a model: layers, stand-ins for absent ones, and an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quire.models.layers import Sum, select_rows
from quire.models.recorded_passes import RecordedPasses
from quire.ops.arrays import Array
from quire.ops.module import Module


class PassLayer(Module):
    """The identity in place of an absent layer. It leaves the KV cache alone."""

    def __call__(self, x: Array | Sum, *_: Any, rows: Array | None = None) -> Array | Sum:
        return Sum(*(select_rows(each, rows) for each in x)) if isinstance(x, Sum) else select_rows(x, rows)


class Adapter(Protocol):
    """Adds to the outputs of linear layers. Their weights stay unchanged."""

    digest: str  #: digest of its weights and config

    def attach(self) -> None:
        """Turn the adapter on. Any other one must be detached before."""
        ...

    def detach(self) -> None:
        """Turn the adapter off."""
        ...


@dataclass(frozen=True, eq=False)
class ServableStage:
    """A stage in memory. The runner may switch stages between steps."""

    number: int  #: from 1
    layers: Sequence[Module]  #: layers and stand-ins, by index in the full model
    adapter: Adapter | None = None
    is_truncated: bool = False  #: whether linear layers and embeddings compute with some mantissa bits only
    recorded_passes: RecordedPasses = field(default_factory=RecordedPasses)
