"""Tune glibc's malloc for freed memory. Other allocators (musl, macOS) are left alone."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8


def keep_freed_memory() -> None:
    """Keep freed pages for the next activations. Returning and clearing them took 4 to 7 % of a run's time."""
    _set({_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 64 << 20})


def share_one_heap() -> None:
    """Use one heap for all threads; otherwise each thread keeps the memory of its largest text."""
    _set({_ARENA_MAX: 1})


def give_memory_back() -> None:
    """Return free memory to the system, such as the tens of megabytes of a tokenized large text."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set(options: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)
