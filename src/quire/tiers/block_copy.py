"""Copies of blocks, as few as there are runs of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch


def runs(*places: Sequence[int]) -> Iterator[slice]:
    """The longest pieces over which every list goes up by one from entry to entry."""
    first = places[0]
    start = 0
    for at in range(1, len(first) + 1):
        if at == len(first) or any(place[at] != place[at - 1] + 1 for place in places):
            yield slice(start, at)
            start = at


def copy_blocks(into: torch.Tensor, blocks: torch.Tensor) -> None:
    """Copy bytes, uint8 [n, block_bytes], at once.

    Returns before a copy from or to a GPU is done, if the host's side is pinned: it is queued on the current stream.
    """
    if into.is_cuda or blocks.is_cuda:
        into.copy_(blocks, non_blocking=True)
    else:  # torch would share the work between threads, for which the model is waiting
        np.copyto(into.numpy(), blocks.numpy())
