"""The interface of every place for swapped blocks: slots of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class SwapSpace(Protocol):
    """`num_slots` slots, numbered from 0, of one block each.

    Blocks come and go as bytes, uint8 [n, block_bytes], contiguous in memory. From a space that is no memory they may
    also be read to n buffers that lie apart.
    A slot is not written while a read of it is under way. Failures never raise: they are returned.
    """

    num_slots: int
    block_bytes: int
    is_memory: bool  #: reads and writes are plain copies, which may be from and to a GPU, queued on its current stream

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        """Put blocks into slots.

        Returns:
            Indices of the blocks that did not get there. Reading such a slot fails.
        """

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        """Fetch blocks that were written under these keys.

        Returns:
            Indices of the blocks that are not as they were written; their part of `into` may hold anything.
        """

    def close(self) -> None:
        """Give the space back, for good. May be called twice."""
