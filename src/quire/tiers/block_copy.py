"""Copy blocks, one copy per run of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch


def runs(*lists: Sequence[int]) -> Iterator[slice]:
    """The longest slices over which every list grows by one per entry."""
    first = lists[0]
    start = 0
    for at in range(1, len(first) + 1):
        if at == len(first) or any(each[at] != each[at - 1] + 1 for each in lists):
            yield slice(start, at)
            start = at


def copy_blocks(into: torch.Tensor, blocks: torch.Tensor) -> None:
    """Copy uint8 `[n, block_bytes]` at once.

    A copy between a GPU and pinned memory is queued on the current stream; it may be unfinished on return.
    """
    if into.is_cuda or blocks.is_cuda:
        into.copy_(blocks, non_blocking=True)
    else:  # torch would use threads that the model needs
        np.copyto(into.numpy(), blocks.numpy())
