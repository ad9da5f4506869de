"""Page cache residency of files: a read from the cache measures no disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def resident_pages(file: int) -> list[bool]:
    """Whether each page of an open file is in memory (mincore(2)). Empty if the system does not support it."""
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
    """Flush files and drop them from the page cache. Returns the share of their pages that remains (all on a tmpfs)."""
    resident = total = 0
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            pages = resident_pages(file.fileno())
        resident, total = resident + sum(pages), total + len(pages)
    return resident / max(1, total)


def filesystem_of(path: Path) -> str:
    """The type of a path's file system, such as ext4; empty if the system does not tell."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    found = ("", "")
    for line in lines:  # 36 35 98:0 /root /mounted/at options - type source options
        mount, _, rest = line.partition(" - ")
        mounted = mount.split(" ")[4].encode().decode("unicode_escape")  # blanks are octal there
        if path.resolve().is_relative_to(mounted) and len(mounted) >= len(found[0]):
            found = mounted, rest.split(" ")[0]
    return found[1]
