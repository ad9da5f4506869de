"""What glibc's malloc is told about freed memory. With another one (musl, macOS) nothing happens."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8


def keep_freed_memory() -> None:
    """For tensor work: by default the activations' pages go back to the system after every operation, and clearing them
    anew took 4 to 7 % of a run's time."""
    _set({_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 64 << 20})


def share_one_heap() -> None:
    """Of all threads: with one heap each, every one keeps what its largest text took."""
    _set({_ARENA_MAX: 1})


def give_memory_back() -> None:
    """Return what is free now: each thread that has tokenized a large text would keep its tens of megabytes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set(options: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)
