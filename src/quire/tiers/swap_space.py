"""Interface of a swap space: slots for the bytes of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class SwapSpace(Protocol):
    """Slots of one block each, numbered from 0.

    Blocks are contiguous uint8 `[n, block_bytes]`; a space that is no memory also reads into n separate buffers. A slot
    is not written during a read of it. Failures are returned, never raised.
    """

    num_slots: int
    block_bytes: int
    is_memory: bool  #: reads and writes are plain copies, queued on the current stream for a GPU

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        """Write blocks. Returns the indices of failed ones; reading their slots fails."""

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        """Read blocks that were written under these keys. Returns the indices of missing or altered blocks."""

    def close(self) -> None:
        """Release the space. May be called twice."""
