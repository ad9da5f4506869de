"""What of a file is in memory: a read from there says nothing about the disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

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


def drop_pages(paths: Iterable[Path]) -> float:
    """Write files out, and drop them from the page cache. Returns the share of their pages that are still there, as
    all of a tmpfs are."""
    resident = total = 0
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            pages = resident_pages(file.fileno())
        resident, total = resident + sum(pages), total + len(pages)
    return resident / max(1, total)


def filesystem_of(path: Path) -> str:
    """The type of the file system that a path is on, such as ext4 or tmpfs; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    found = ("", "")
    for line in lines:  # 36 35 98:0 /root /mounted/at options - type source options
        place, _, rest = line.partition(" - ")
        mounted = place.split(" ")[4].encode().decode("unicode_escape")  # blanks are octal there
        if path.resolve().is_relative_to(mounted) and len(mounted) >= len(found[0]):
            found = mounted, rest.split(" ")[0]
    return found[1]
