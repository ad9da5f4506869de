"""A servable stage of a model: layers, stand-ins for absent ones, and an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from quire.models.layers import Sum, select_rows
from quire.models.linear.layer import Linear
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import Share, gather
from quire.models.recorded_passes import RecordedPasses
from quire.models.tensor_file import read_tensors, wrong_file
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, assign, widen
from quire.ops.module import Module


class PassLayer(Module):
    """The identity in place of an absent layer. It leaves the KV cache alone."""

    def __call__(self, x: Array | Sum, *_: Any, rows: Array | None = None) -> Array | Sum:
        return Sum(*(select_rows(each, rows) for each in x)) if isinstance(x, Sum) else select_rows(x, rows)


class LinearMap(Module):
    """y = x W^T + b in place of several absent layers: at the first one's index, with PassLayers at the others. Stores
    W - I, as W is close to the identity and bfloat16 would round most of the difference away."""

    def __init__(self, hidden_size: int | Share, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        self._hidden, self._group = Share.of(hidden_size), group
        self.change = Linear(self._hidden.total, self._hidden, bias=True, dtype=dtype, device=device)

    def __call__(self, x: Array | Sum, *_: Any, rows: Array | None = None) -> Array:
        x = select_rows(ops.add(x.x, x.y) if isinstance(x, Sum) else x, rows)
        return ops.add(x, gather(self.change(x), self._hidden, self._group))


def read_linear_map(
    path: Path,
    *,
    hidden_size: int | Share,
    dtype: DType,
    device: str,
    group: ParallelGroup = ALONE,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> LinearMap:
    """Read a rank's share of a map and pack it; ModelConfigError if unreadable or it does not fit."""
    hidden = Share.of(hidden_size)
    expected = {"weight": (hidden.total, hidden.total), "bias": (hidden.total,)}
    tensors = read_tensors(path, read)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise wrong_file(path, f"contains {found}, but a linear map of this model has {expected}")
    result = LinearMap(hidden, dtype=dtype, device=device, group=group)
    views = dict(result.change.checkpoint_tensors("map"))
    ((start, end),) = hidden.ranges
    change = widen(tensors["weight"]).copy()
    change[np.diag_indices(len(change))] -= 1
    assign(views["map.weight"], change[start:end])
    assign(views["map.bias"], tensors["bias"][start:end])
    result.change.pack()
    return result


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
    recorded_passes: RecordedPasses = field(default_factory=RecordedPasses)
