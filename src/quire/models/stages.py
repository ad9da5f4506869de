"""What a model computes with at a stage: layers, identities in the places of absent ones, and an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from quire.models.layers import Sum, take_rows
from quire.models.linear.layer import Linear
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import Share, gather
from quire.models.recorded_passes import RecordedPasses
from quire.models.tensor_file import read_tensors, wrong_file


class PassLayer(nn.Module):
    """The identity in the place of a layer that is not there: neither computes nor touches the KV cache."""

    def forward(self, x: Tensor | Sum, *_: Any, rows: Tensor | None = None) -> Tensor | Sum:
        return Sum(*(take_rows(each, rows) for each in x)) if isinstance(x, Sum) else take_rows(x, rows)


class LinearMap(nn.Module):
    """y = x W^T + b in the place of several layers; stands at the first one's index, PassLayers at the others'.

    What it holds is W - I: W is near the identity, which in bfloat16 would leave few digits to what differs from it.
    """

    def __init__(
        self, hidden_size: int | Share, *, dtype: torch.dtype, device: torch.device | str, group: ParallelGroup = ALONE
    ) -> None:
        super().__init__()
        self._hidden, self._group = Share.of(hidden_size), group
        self.change = Linear(self._hidden.total, self._hidden, bias=True, dtype=dtype, device=device)

    def forward(self, x: Tensor | Sum, *_: Any, rows: Tensor | None = None) -> Tensor:
        x = take_rows(x.x + x.y if isinstance(x, Sum) else x, rows)
        return x + gather(self.change(x), self._hidden, self._group)


def read_linear_map(
    path: Path,
    *,
    hidden_size: int | Share,
    dtype: torch.dtype,
    device: torch.device | str,
    group: ParallelGroup = ALONE,
    read: Callable[[Path], bytes] = Path.read_bytes,
) -> LinearMap:
    """The map in a safetensors file, packed: `weight` [hidden_size, hidden_size] and `bias` [hidden_size].

    Args:
        hidden_size: with a share, the rank keeps its part of the map; the file is read whole.
        read: the content of the file, which is read once.

    Raises:
        ModelConfigError: the file cannot be read, or holds something else.
    """
    hidden = Share.of(hidden_size)
    expected = {"weight": (hidden.total, hidden.total), "bias": (hidden.total,)}
    tensors = read_tensors(path, read)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise wrong_file(path, f"holds {found}, where a linear map of this model has {expected}")
    result = LinearMap(hidden, dtype=dtype, device=device, group=group)
    views = dict(result.change.checkpoint_tensors("map"))
    ((start, end),) = hidden.ranges
    change = tensors["weight"].float()
    change.diagonal().sub_(1)
    views["map.weight"].copy_(change[start:end])
    views["map.bias"].copy_(tensors["bias"][start:end])
    result.change.pack()
    return result.eval()


class Adapter(Protocol):
    """What a stage adds to the outputs of linear layers; the weights stay as they are."""

    digest: str  #: of its weights and its config

    def attach(self) -> None:
        """Have the model's linear layers add their parts of it. Any other adapter was detached before."""
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
    recorded_passes: RecordedPasses = field(default_factory=RecordedPasses)
