"""Copies of blocks, as few as there are runs of neighbours.

Knows tensors of bytes; knows nothing about what the blocks are or where they lie.
"""

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
    """Copy bytes, [n, block_bytes], at once; blocks that are cut into pieces, [n, pieces, piece_bytes], piece by piece.

    Returns before a copy from or to a GPU is done, if the host's side is pinned: it is queued on the current stream.
    """
    if into.dim() == 2:
        _copy(into, blocks)
        return
    for block_into, block in zip(into, blocks, strict=True):
        for piece_into, piece in zip(block_into, block, strict=True):
            _copy(piece_into, piece)


def _copy(into: torch.Tensor, source: torch.Tensor) -> None:
    if into.is_cuda or source.is_cuda:
        into.copy_(source, non_blocking=True)
    else:  # torch would share the work between threads, for which the model is waiting
        np.copyto(into.numpy(), source.numpy())
