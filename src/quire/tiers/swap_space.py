"""Swap spaces: the interface, copies of neighbouring blocks, and the space in host memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from quire.ops.arrays import Array, as_tensor, is_numpy


class SwapSpace(Protocol):
    """Slots of one block each: contiguous uint8 `[n, block_bytes]`, or, from a space that is no memory, n buffers. Only
    memory takes arrays on a GPU. A slot is not written during a read of it. Failures are returned, never raised."""

    num_slots: int
    block_bytes: int
    is_memory: bool  #: reads and writes are plain copies, queued on the current stream for a GPU

    def write(self, slots: list[int], keys: list[bytes], blocks: Array) -> list[int]:
        """Write blocks. Returns the indices of failed ones; reading their slots fails."""

    def read(self, slots: list[int], keys: list[bytes], into: Array | Sequence[memoryview]) -> list[int]:
        """Read blocks that were written under these keys. Returns the indices of missing or altered blocks."""


def runs(*lists: Sequence[int]) -> Iterator[slice]:
    """The longest slices over which every list grows by one per entry."""
    first = lists[0]
    start = 0
    for at in range(1, len(first) + 1):
        if at == len(first) or any(each[at] != each[at - 1] + 1 for each in lists):
            yield slice(start, at)
            start = at


def copy_blocks(into: Array, blocks: Array) -> None:
    """Copy uint8 `[n, block_bytes]` at once; from or to a GPU, queued on the current stream and maybe unfinished."""
    if is_numpy(into) and is_numpy(blocks):
        np.copyto(into, blocks)  # in this thread: others are the model's
    else:
        as_tensor(into).copy_(as_tensor(blocks), non_blocking=True)


class HostSpace:
    """A `SwapSpace` in memory, allocated as slots are written; pinned memory, for asynchronous copies, at once."""

    is_memory = True

    def __init__(self, num_slots: int, block_bytes: int, pinned: bool = False) -> None:
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        # Not in large pages: in a virtual machine the first touch of one may take 15 ms, while a step waits.
        memory = mmap.mmap(-1, num_slots * block_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory = np.frombuffer(memory, np.uint8).reshape(num_slots, block_bytes)
        self._keys: list[bytes | None] = [None] * num_slots
        if pinned:
            from quire.tiers.cuda import pin

            pin(self._memory, self)

    def write(self, slots: list[int], keys: list[bytes], blocks: Array) -> list[int]:
        for run in runs(slots):
            for slot, key in zip(slots[run], keys[run], strict=True):
                self._keys[slot] = key  # before the bytes: `read` compares keys after its copies
            copy_blocks(self._rows(slots[run]), blocks[run])
        return []

    def read(self, slots: list[int], keys: list[bytes], into: Array | Sequence[memoryview]) -> list[int]:
        assert not isinstance(into, Sequence), "memory is read in runs"
        for run in runs(slots):
            copy_blocks(into[run], self._rows(slots[run]))
        # Compare keys after the copies, to notice a slot that was written meanwhile by mistake.
        return [i for i, (slot, key) in enumerate(zip(slots, keys, strict=True)) if self._keys[slot] != key]

    def _rows(self, slots: list[int]) -> np.ndarray:
        return self._memory[slots[0] : slots[0] + len(slots)]
