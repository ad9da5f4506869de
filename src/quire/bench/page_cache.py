"""What of a file is in memory: a read from there says nothing about the disk."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np


def resident_pages(file: int) -> list[bool]:
    """Which pages of a file are in memory (mincore(2)). Empty where the system does not tell."""
    size = os.fstat(file).st_size
    if not size:
        return []
    with mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        states = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        try:
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), states)
        except AttributeError:
            return []
        finally:
            del view
    return [] if failed else [bool(state & 1) for state in states]
