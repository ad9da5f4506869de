"""Tensors in memory of its own, for what is large and stays: weights, the KV cache."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

_LARGE_PAGE = 2 << 20  # of x86-64 and, mostly, of AArch64; below it malloc does as well


def new_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialized main memory: in large pages, where that much is asked for.

    Raises:
        MemoryError: there is not as much.
    """
    if math.prod(shape) * dtype.itemsize < _LARGE_PAGE:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return new_zeros(shape, dtype)


def new_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros in large pages where the system has them, taken only where they are written, and given back when the last
    who holds them lets go.

    With small pages a core waits for page tables: it read 20 GB/s where it reads 28 with large ones, on a Zen 4 EPYC.

    Raises:
        MemoryError: there is not as much.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    try:
        # Not the default, which is shared memory: that has no large pages as most systems are set.
        pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes >> 20} MiB of memory cannot be had: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):  # of Linux
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)
