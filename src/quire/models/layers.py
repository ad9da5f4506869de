"""Norms and embeddings on a flattened batch: [num_tokens, features], without padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from quire.models.linear.layer import Linear, WeightLayer
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel.group import ParallelGroup
from quire.models.parallel.split import Share, TensorShare
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, cast, empty, widen
from quire.ops.module import Module


def check_activation(name: str) -> str:
    """Return the name of a supported activation; raise UnsupportedModelError for others."""
    if name not in ops.ACTIVATIONS:
        raise UnsupportedModelError(f"activation {name!r} is not supported; supported: {', '.join(ops.ACTIVATIONS)}")
    return name


class Sum(NamedTuple):
    """x + y, computed by the norm that reads it, which saves a pass over memory. y is overwritten."""

    x: Array
    y: Array


def select_rows(x: Array, rows: Array | None) -> Array:
    """Select rows of x by index, int64 [num_rows]; None returns x itself."""
    return x if rows is None else x[rows]


class RMSNorm(Module):
    """x / rms(x) * (weight + offset), in float32 inside."""

    def __init__(self, size: int | Share, eps: float, *, offset: float = 0.0, dtype: DType, device: str) -> None:
        self.share = Share.of(size)
        self.eps, self.offset = eps, offset
        self.weight = empty((self.share.size,), dtype, device)

    def __call__(self, x: Array) -> Array:
        return ops.rms_norm(x, self.weight, self.eps, self.offset)

    def of_share(self, x: Array, group: ParallelGroup) -> Array:
        """Norm rows of which each rank has a part, maybe the same one as others: [num_tokens, share.size]."""
        wide = widen(x)
        copies = group.size * self.share.size / self.share.total
        mean = group.all_reduce((wide * wide).sum(-1, keepdims=True)) / (self.share.total * copies)
        normed = wide / (mean + self.eps) ** 0.5 * widen(self.weight)
        return cast(normed, x.dtype)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not self.share.is_whole:
            yield f"{name}.weight", TensorShare((self.share.total,), 0, self.share.ranges)

    def add_and_norm(self, x: Array | Sum) -> tuple[Array, Array]:
        """Return the sum and its norm, each [num_tokens, size]. The sum overwrites its second addend."""
        if isinstance(x, Sum):
            return x.y, ops.rms_norm(x.y, self.weight, self.eps, self.offset, x.x)
        return x, self(x)


def add_and_norm(x: Array | Sum, norm: RMSNorm | None) -> tuple[Array, Array]:
    """As `RMSNorm.add_and_norm`; without a norm, return the sum twice."""
    if norm is not None:
        return norm.add_and_norm(x)
    total = ops.add(x.x, x.y) if isinstance(x, Sum) else x
    return total, total


class LayerNorm(Module):
    """(x - mean) / std * weight + bias."""

    def __init__(self, size: int, eps: float, *, affine: bool = True, dtype: DType, device: str) -> None:
        self.eps = eps
        self.weight = empty((size,), dtype, device) if affine else None
        self.bias = empty((size,), dtype, device) if affine else None

    def __call__(self, x: Array) -> Array:
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class Embedding(WeightLayer):
    """A table of vectors by id. Ids of other ranks' rows give zeros, so that the group's sum is complete."""

    packed: Any = None  #: a packed weight with rows

    def __init__(self, num_rows: int | Share, size: int, *, dtype: DType, device: str) -> None:
        super().__init__(size, num_rows, dtype, device)

    def __call__(self, ids: Array) -> Array:
        if self.outputs.is_whole:
            return self._look_up(ids)
        ((start, end),) = self.outputs.ranges
        is_elsewhere = (ids < start) | (ids >= end)
        rows = ids - start
        rows[is_elsewhere] = 0
        vectors = self._look_up(rows)
        vectors[is_elsewhere] = 0
        return vectors

    def _look_up(self, ids: Array) -> Array:
        if self.packed is not None:
            return self.packed.rows(ids)
        assert self.weight is not None
        return self.weight[ids]

    def pack(self, device: str = "cpu", *, decodes: bool = False) -> None:
        """As `Linear.pack`, for a stored table. `decodes` it in any case."""
        if (parts := self.stored) is not None:
            self.stored, packed = None, None if decodes else self.pack_parts(parts, device)
            self.packed = packed if hasattr(packed, "rows") else None
            self.weight = parts.decode(self.dtype, device) if self.packed is None else None

    def share_with(self, head: Linear, device: str = "cpu") -> None:
        """Pack a tied head and read rows from its packed weight, if its layout allows that."""
        self.pack(device, decodes=head.quantization != "none")
        head.packed, head.weight = self.packed, self.weight
        head.pack()
        if head.quantization == "none" and hasattr(head.packed, "rows"):
            self.packed, self.weight = head.packed, None
