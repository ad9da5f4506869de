"""Memory in large pages for large, long-lived arrays: weights, the KV cache."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

_LARGE_PAGE = 2 << 20  # of x86-64 and usually of AArch64; malloc serves smaller arrays as well
_LINE = 64  # bytes of a cache line
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0


def new_empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array that begins a cache line, in large pages if it is large; raises MemoryError."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes >= _LARGE_PAGE:
        return new_zeros(shape, dtype)
    memory = np.empty(num_bytes + _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    return memory[first : first + num_bytes].view(dtype).reshape(shape)


def new_zeros(shape: Sequence[int], dtype: np.dtype, *, is_sparse: bool = False) -> np.ndarray:
    """Return zeros, in large pages if possible (28 instead of 20 GB/s on a Zen 4 EPYC); raises MemoryError. A sparse
    array may be larger than the memory, for `return_memory`; its pages are small."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes:
        return np.zeros(shape, dtype)
    try:
        # Private memory: shared memory, the default, has no large pages on most systems.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_NORESERVE if is_sparse else 0)
        pages = mmap.mmap(-1, num_bytes, flags=flags)
    except OSError as error:
        raise MemoryError(f"{num_bytes >> 20} MiB of memory cannot be had: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with suppress(OSError):
            pages.madvise(mmap.MADV_NOHUGEPAGE if is_sparse else mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def return_memory(part: np.ndarray) -> None:
    """Return the memory of the whole pages in a contiguous part of a `new_zeros` array. They read as zeros again."""
    size, address = mmap.PAGESIZE, part.ctypes.data
    first, end = -(-address // size) * size, (address + part.nbytes) // size * size
    if first < end:
        _madvise()(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)


@functools.cache
def _madvise() -> Any:
    return ctypes.CDLL(None).madvise
