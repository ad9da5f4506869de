"""Norms, embeddings and activations on a flattened batch: [num_tokens, features], without padding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quire.kernels.elementwise import Elementwise, elementwise, threads_for
from quire.kernels.recorder import new_output
from quire.models.linear.layer import Linear, empty_parameter
from quire.models.linear.panel_weight import PanelWeight
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel.split import Share, TensorShare
from quire.system.threads import num_threads

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": functools.partial(F.gelu, approximate="tanh"),
    "gelu_fast": functools.partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": functools.partial(F.gelu, approximate="tanh"),
}


def check_activation(name: str) -> str:
    """Return the name of a supported activation; raise UnsupportedModelError for others."""
    if name not in ACTIVATIONS:
        raise UnsupportedModelError(f"activation {name!r} is not supported; supported: {', '.join(ACTIVATIONS)}")
    return name


class Sum(NamedTuple):
    """x + y, computed by the norm that reads it, which saves a pass over memory. y is overwritten."""

    x: Tensor
    y: Tensor


def select_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Select rows of x by index, int64 [num_rows]; None returns x itself."""
    return x if rows is None else x.index_select(0, rows)


def kernels_for(dtype: torch.dtype) -> Elementwise | None:
    """Return the elementwise kernels of a dtype, or None."""
    return elementwise(str(dtype).removeprefix("torch."))


def is_plain(x: Tensor, other: Tensor) -> bool:
    """Return whether kernels accept x: in main memory, without gradients, in the dtype of `other`."""
    return x.is_cpu and x.dtype is other.dtype and not x.requires_grad


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32 inside. The kernel takes one pass, F.rms_norm six operations."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: torch.device | str) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = empty_parameter((size,), dtype, device)
        self._kernels = kernels_for(dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self._kernels is None or not is_plain(x, self.weight):
            return F.rms_norm(x, self.size, self.weight, self.eps)
        x = x.contiguous()
        return self._norm(None, x, self._kernels)

    def add_and_norm(self, x: Tensor | Sum) -> tuple[Tensor, Tensor]:
        """Return the sum and its norm, each [num_tokens, size]. The sum overwrites its second addend."""
        if not isinstance(x, Sum):
            return x, self(x)
        x, y = x
        if self._kernels is None or not (is_plain(x, self.weight) and x.is_contiguous() and y.is_contiguous()):
            y = y.add_(x)
            return y, self(y)
        return y, self._norm(x.data_ptr(), y, self._kernels)

    def _norm(self, x: int | None, y: Tensor, kernels: Elementwise) -> Tensor:
        out = new_output(y.shape, y.dtype)
        size, num_elements = self.size[0], y.numel()
        threads = threads_for(num_elements, num_threads())
        kernels.norm(
            x, y.data_ptr(), self.weight.data_ptr(), out.data_ptr(), num_elements // size, size, self.eps, threads
        )
        return out


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias."""

    def __init__(
        self, size: int, eps: float, *, affine: bool = True, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = empty_parameter((size,), dtype, device) if affine else None
        self.bias = empty_parameter((size,), dtype, device) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.size, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    """A table of vectors by id. Ids of other ranks' rows give zeros, so that the group's sum is complete."""

    def __init__(self, num_rows: int | Share, size: int, *, dtype: torch.dtype, device: torch.device | str) -> None:
        super().__init__()
        self.rows, self.size = Share.of(num_rows), size
        self._is_whole = self.rows.is_whole
        self.weight: nn.Parameter | None = empty_parameter((self.rows.size, size), dtype, device)
        self.packed: PanelWeight | None = None

    def forward(self, ids: Tensor) -> Tensor:
        if self._is_whole:
            return self._look_up(ids)
        ((start, end),) = self.rows.ranges
        is_elsewhere = (ids < start) | (ids >= end)
        vectors = self._look_up((ids - start).masked_fill_(is_elsewhere, 0))
        return vectors.masked_fill_(is_elsewhere[:, None], 0)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not self._is_whole:
            yield f"{name}.weight", TensorShare((self.rows.total, self.size), 0, self.rows.ranges)

    def _look_up(self, ids: Tensor) -> Tensor:
        if self.packed is not None:
            return self.packed.rows(ids)
        assert self.weight is not None
        return F.embedding(ids, self.weight)

    def share_with(self, head: Linear) -> None:
        """Pack a tied head and read rows from its packed weight, if its layout allows that."""
        head.weight = self.weight
        head.pack()
        if isinstance(head.packed, PanelWeight):
            self.packed, self.weight = head.packed, None
