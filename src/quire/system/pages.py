"""Memory in large pages for large, long-lived tensors: weights, the KV cache."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

_LARGE_PAGE = 2 << 20  # of x86-64 and usually of AArch64; malloc serves smaller tensors as well


def new_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return an uninitialized tensor in main memory, in large pages if it is large; raises MemoryError."""
    if math.prod(shape) * dtype.itemsize < _LARGE_PAGE:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return new_zeros(shape, dtype)


def new_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return zeros, in large pages if possible (28 instead of 20 GB/s on a Zen 4 EPYC); raises MemoryError."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    try:
        # Private memory: shared memory, the default, has no large pages on most systems.
        pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes >> 20} MiB of memory cannot be had: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)
