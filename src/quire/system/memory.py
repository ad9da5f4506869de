"""Memory and processor time: what this process may still use, and what a process uses.

Control groups limit a container or a systemd unit (MemoryMax, CPUQuota). A limit of an outer group counts too.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_GIB = 2**30


def control_groups(controller: str, root: Path = CGROUP) -> Iterator[Path]:
    """Yield the folders of this process's control groups, innermost first, of both versions, below the root if need
    be."""
    for mount, path in ((root, _path_of("")), (root / controller, _path_of(controller))):
        inside = mount.joinpath(*path.parts[1:])
        if ".." in path.parts or not inside.is_dir():  # the mount begins at the container's own group
            inside = mount
        yield inside
        yield from (each for each in inside.parents if each.is_relative_to(mount))


def _path_of(controller: str) -> PurePosixPath:
    """Return the path of the process's group; "" is the hierarchy of version 2."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePosixPath(path)
    return PurePosixPath("/")


def is_gpu_full(error: BaseException) -> bool:
    """Whether an error, maybe of another process, says that a GPU has no memory left."""
    return type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and re.search("CUDA.*(out of memory|ALLOC_FAILED)", str(error)) is not None
    )


def release_gpu_memory(error: BaseException) -> None:
    """Free the memory of a failed computation: the variables of its frames, and what torch keeps for the next one."""
    traceback.clear_frames(error.__traceback__)
    if (torch := sys.modules.get("torch")) is not None:
        torch.cuda.empty_cache()


def free_memory() -> int:
    """Return the bytes of main memory that this process may still use."""
    free = [_value(_PROC / "meminfo", "MemAvailable:") * 1024 or total_memory() // 2]
    for folder in control_groups("memory"):
        for limit, usage, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                left = int((folder / limit).read_text()) - int((folder / usage).read_text())
            except (OSError, ValueError):  # "max", or the other version
                continue
            free.append(max(0, left + _value(folder / "memory.stat", cache)))
    limit_of_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit_of_space != resource.RLIM_INFINITY:
        free.append(max(0, limit_of_space - address_space()))
    return min(free)


def total_memory() -> int:
    """Return the bytes of the machine's main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def address_space() -> int:
    """Return the bytes of this process's address space; 0 if unknown."""
    try:
        return int((_PROC / "self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _value(path: Path, name: str) -> int:
    """Return a number of a file with one name and value a line; 0 if it is unknown."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split(maxsplit=1)[:1] == [name]), 0)


def num_memory_kills() -> int:
    """Return how many processes the system has killed for memory so far, in all containers of the machine."""
    return _value(_PROC / "vmstat", "oom_kill")


def explain_kill(num_kills_before: int) -> str:
    """Explain the end of a process by SIGKILL, with figures."""
    figures = f"{free_memory() / _GIB:.1f} GiB of {total_memory() / _GIB:.1f} GiB are free now"
    if num_memory_kills() > num_kills_before:
        return f"killed by the system for memory: {figures}"
    return f"probably killed for memory, or by a person: {figures}"


def used_by(pid: int, *, with_children: bool = True) -> tuple[int, float] | None:
    """Return resident bytes and processor seconds of a process, by default with its descendants, or None."""
    try:
        fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in ((_PROC / f"{pid}/task").iterdir() if with_children else ())
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):
        return None
    found = [used for child in children if (used := used_by(child)) is not None]
    num_bytes = int(fields[21]) * resource.getpagesize()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return num_bytes + sum(used[0] for used in found), seconds + sum(used[1] for used in found)


def process_age(pid: int | str = "self") -> float:
    """Return the seconds since a process started, to a hundredth; 0 if unknown."""
    try:
        fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # the 22nd field: starttime
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
