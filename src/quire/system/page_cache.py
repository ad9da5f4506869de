"""Page cache residency of files (mincore(2))."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_LOWEST_BIT = bytes(value & 1 for value in range(256))


def resident_share(file: int) -> float | None:
    """Share of an open file's pages in memory; None if the system does not tell. An empty file counts as resident."""
    size = os.fstat(file).st_size
    if not size:
        return 1.0
    states = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    try:
        with mmap.mmap(file, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
            first = ctypes.c_char.from_buffer(mapped)
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), states)
            del first
    except (OSError, ValueError, AttributeError):
        return None
    return None if failed else bytes(states).translate(_LOWEST_BIT).count(1) / len(states)


def drop_pages(paths: Iterable[Path]) -> float:
    """Flush files and drop them from the page cache. Returns the largest remaining share of a file (1 on a tmpfs)."""
    resident = 0.0
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if os.fstat(file.fileno()).st_size:
                resident = max(resident, resident_share(file.fileno()) or 0.0)
    return resident


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
