"""The tensor-parallel group: ranks and their collective operations, called by all in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.ops.arrays import Array  # would import numpy, in the server too


class ParallelGroup:
    """The ranks that share one model, from 0. This base class is a group of one; see `runner.ranks.group.RankGroup`."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is none of {size}")
        self.rank, self.size = rank, size

    def all_reduce(self, x: Array) -> Array:
        """Sum a contiguous x over all ranks, in place. The result has the same bits on every rank."""
        return x

    def all_gather(self, x: Array) -> Array:
        """Concatenate all ranks' x, of one shape, in rank order: [..., n] -> [..., size * n]."""
        return x


ALONE = ParallelGroup()
