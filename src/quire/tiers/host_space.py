"""Swapped blocks in host memory."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from quire.tiers.block_copy import copy_blocks, runs


class HostSpace:
    """A `SwapSpace` in memory, allocated as slots are written; pinned memory, for asynchronous copies, at once."""

    is_memory = True

    def __init__(self, num_slots: int, block_bytes: int, pinned: bool = False) -> None:
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._memory = torch.empty((num_slots, block_bytes), dtype=torch.uint8)
        self._keys: list[bytes | None] = [None] * num_slots
        self._unpin = _pin(self._memory, self) if pinned else None

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        for run in runs(slots):
            for slot, key in zip(slots[run], keys[run], strict=True):
                self._keys[slot] = key  # before the bytes: `read` compares keys after its copies
            copy_blocks(self._rows(slots[run]), blocks[run])
        return []

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        assert isinstance(into, torch.Tensor), "memory is read in runs"
        for run in runs(slots):
            copy_blocks(into[run], self._rows(slots[run]))
        # Compare keys after the copies, to notice a slot that was written meanwhile by mistake.
        return [i for i, (slot, key) in enumerate(zip(slots, keys, strict=True)) if self._keys[slot] != key]

    def close(self) -> None:
        if self._unpin is not None:
            self._unpin()
        self._memory = self._memory[:0].clone()

    def _rows(self, slots: list[int]) -> torch.Tensor:
        return self._memory[slots[0] : slots[0] + len(slots)]


def _pin(memory: torch.Tensor, owner: object) -> weakref.finalize:
    """Pin memory until its owner is collected or the result is called. (torch would round up to a power of two.)"""
    cuda = torch.cuda.cudart()
    address = memory.data_ptr()
    torch.cuda.check_error(cuda.cudaHostRegister(address, memory.numel(), 0))
    unpin = weakref.finalize(owner, cuda.cudaHostUnregister, address)
    unpin.atexit = False
    return unpin
