"""A rank's part of a model. Heads are split evenly; the last part of other dimensions may be shorter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.models.model_config import ModelConfig, UnsupportedModelError
from quire.models.parallel.group import ParallelGroup

if TYPE_CHECKING:
    from quire.ops.arrays import Array

_UNIT = 64  # large parts are multiples of it: whole panels of the kernels, whole groups of 4-bit weights


@dataclass(frozen=True)
class Share:
    """A rank's part of a dimension: ranges, which are contiguous in the rank's own tensor."""

    total: int  #: size of the whole dimension
    ranges: tuple[tuple[int, int], ...]
    largest: int  #: size of the largest part

    @classmethod
    def of(cls, total: int | Share) -> Share:
        """Return a share as it is, or a whole dimension as a share."""
        return total if isinstance(total, Share) else cls(total, ((0, total),), total)

    @property
    def size(self) -> int:
        return sum(end - start for start, end in self.ranges)

    @property
    def is_whole(self) -> bool:
        return self.ranges == ((0, self.total),)

    def of_size(self, size: int) -> Share:
        """Scale a share of heads to one of features."""
        ranges = tuple((start * size, end * size) for start, end in self.ranges)
        return Share(self.total * size, ranges, self.largest * size)

    def repeated(self, times: int) -> Share:
        """Return the same share of several dimensions in a row."""
        return Share.joined(*[self] * times)

    @classmethod
    def joined(cls, *shares: Share) -> Share:
        """Return shares of several dimensions as one of all of them in a row."""
        starts = [sum(each.total for each in shares[:i]) for i in range(len(shares))]
        total = sum(each.total for each in shares)
        if all(each.is_whole for each in shares):
            return cls.of(total)
        ranges = tuple(
            (start + a, start + b) for start, each in zip(starts, shares, strict=True) for a, b in each.ranges
        )
        return cls(total, ranges, sum(each.largest for each in shares))


@dataclass(frozen=True)
class TensorShare:
    """A rank's part of a checkpoint's tensor, cut along one dimension."""

    whole_shape: tuple[int, ...]
    dim: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        size = sum(end - start for start, end in self.ranges)
        return (*self.whole_shape[: self.dim], size, *self.whole_shape[self.dim + 1 :])

    @property
    def row_size(self) -> int:
        """Elements of the whole tensor per index of the dimensions before `dim`."""
        return math.prod(self.whole_shape[self.dim :])

    @property
    def columns(self) -> tuple[tuple[int, int], ...]:
        """The part's element ranges in each such row."""
        size = math.prod(self.whole_shape[self.dim + 1 :])
        return tuple((start * size, end * size) for start, end in self.ranges)

    def flat_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the part's element ranges in the whole tensor, ascending."""
        for row in range(math.prod(self.whole_shape[: self.dim])):
            for start, end in self.columns:
                yield row * self.row_size + start, row * self.row_size + end


class ModelSplit:
    """A rank's part of a model. Raises UnsupportedModelError if it cannot be split among this number of ranks."""

    def __init__(self, config: ModelConfig, group: ParallelGroup) -> None:
        self.group, self._config = group, config
        heads = _share_heads(config, group)
        kv_heads = self.kv_heads(config.num_kv_heads)
        self.num_heads, self.num_kv_heads = heads.size, kv_heads.size  #: on this rank
        self.heads = heads
        self.q = heads.of_size(config.head_dim)
        self.kv = kv_heads.of_size(config.head_dim)
        self.hidden = self._cut(config.hidden_size, "hidden features")
        self.inner = self.cut_inner(config.intermediate_size)
        if config.experts is not None:
            self.expert_inner = self._cut(config.experts.inner, "features of an expert")
            self.shared_inner = self._cut(config.experts.shared_inner, "features of the shared expert")
        self.vocab = self._cut(config.vocab_size, "rows of the vocabulary")
        self.embedding = self._cut(config.embedding_dim, "features of the embedding")
        self.positions = self._cut(config.num_position_rows, "positions")

    def kv_heads(self, num_heads: int) -> Share:
        """Split KV heads evenly; with fewer heads than ranks, several ranks have the same one."""
        rank, size = self.group.rank, self.group.size
        if num_heads % size and size % num_heads:
            raise _refusal(self._config, self.group, f"{num_heads} KV heads can neither be split nor repeated evenly")
        each, first = max(1, num_heads // size), rank * num_heads // size
        return Share(num_heads, ((first, first + each),), each)

    def state_heads(self, num_heads: int) -> Share:
        if num_heads % self.group.size:
            raise _refusal(self._config, self.group, f"{num_heads} heads of states cannot be split evenly")
        return self.kv_heads(num_heads)

    def cut_inner(self, size: int) -> Share:
        """Cut an MLP's inner dimension."""
        return self._cut(size, "features of the MLP")

    def gather(self, x: Array, share: Share) -> Array:
        """Gather shares: [..., share.size] -> [..., share.total], in rank order; only the last may be smaller."""
        if self.group.size == 1:
            return x
        if share.size < share.largest:  # all_gather needs equal shapes
            from quire.ops.arrays import empty

            own, x = x, empty((*x.shape[:-1], share.largest), x.dtype, str(x.device))
            x[..., : share.size] = own
            x[..., share.size :] = 0
        return self.group.all_gather(x)[..., : share.total]

    def _cut(self, total: int, what: str) -> Share:
        rank, size = self.group.rank, self.group.size
        if size == 1 or not total:
            return Share.of(total)
        unit = _UNIT if total > _UNIT * size * size else 1
        largest = -(-total // (size * unit)) * unit
        if total <= largest * (size - 1):
            raise UnsupportedModelError(f"{total} {what} are too few for {size} ranks")
        return Share(total, ((rank * largest, min(total, (rank + 1) * largest)),), largest)


def _share_heads(config: ModelConfig, group: ParallelGroup) -> Share:
    if config.num_heads % group.size:
        raise _refusal(config, group, f"{config.num_heads} attention heads cannot be split evenly")
    each = config.num_heads // group.size
    return Share(config.num_heads, ((group.rank * each, (group.rank + 1) * each),), each)


def _refusal(config: ModelConfig, group: ParallelGroup, what: str) -> UnsupportedModelError:
    heads, kv_heads = config.num_heads, config.num_kv_heads
    sizes = [n for n in range(1, heads + 1) if not heads % n and (not kv_heads % n or not n % kv_heads)]
    return UnsupportedModelError(
        f"{what} among tensor_parallel_size={group.size} ranks; a model with {heads} attention heads and {kv_heads} KV "
        f"heads supports {', '.join(map(str, sizes))}"
    )
