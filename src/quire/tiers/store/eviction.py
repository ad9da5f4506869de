"""Evict segments to make room for a new one, over all namespaces and processes of a directory. A segment's value is the
predicted seconds to compute its blocks, per byte, divided by the time since its last use."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from quire.config import format_size
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.record import SEGMENT_VERSIONS
from quire.tiers.store.layout.segment import NAME, Segment, read_cost, read_file_header

logger = logging.getLogger("quire")

_MIN_AGE_S = 60.0  #: file times are updated once a minute
CostOf = Callable[[Path], float | None]


class NoRoomError(OSError):
    """There is no room, and nothing to evict."""


@dataclass
class SegmentFile:
    path: Path
    size: int
    used_at: float  #: seconds since the epoch, by the clock of the process that used it
    has_index: bool

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".idx")


@dataclass
class DirectoryUsage:
    num_bytes: int = 0  #: size of all files
    num_reserved: int = 0  #: bytes by which open segments may still grow
    sealed: list[SegmentFile] = field(default_factory=list)  #: segments without a writer


def survey(directory: Path, only: Path | None = None) -> DirectoryUsage:
    """Measure a store's directory, or one namespace. Files of other versions count, but are never removed."""
    usage = DirectoryUsage()
    for namespace in [path for path in directory.iterdir() if path.is_dir()] if only is None else [only]:
        with contextlib.suppress(OSError):
            _survey_namespace(namespace, usage)
    return usage


def _survey_namespace(namespace: Path, usage: DirectoryUsage) -> None:
    found: list[tuple[str, os.stat_result]] = []
    for entry in os.scandir(namespace):
        with contextlib.suppress(OSError):
            found.append((entry.name, entry.stat(follow_symlinks=False)))
    usage.num_bytes += sum(stat.st_size for _, stat in found)
    names = {name for name, _ in found}
    for name, stat in found:
        if not NAME.fullmatch(name):
            continue
        has_index = name.removesuffix(".seg") + ".idx" in names
        segment = SegmentFile(namespace / name, stat.st_size, stat.st_mtime, has_index)
        reserved = None if has_index else _growth(segment)
        if reserved is None:
            usage.sealed.append(segment)
        else:
            usage.num_reserved += reserved


def _growth(segment: SegmentFile) -> int | None:
    """Bytes by which a segment without an index may still grow; None if it has no writer."""
    try:
        file = OpenFile(segment.path)
    except OSError:
        return 0
    if file.lock(shared=True) is True:
        return None
    header = read_file_header(file)
    return 0 if header is None else max(0, header.capacity - segment.size)


def make_room(directory: Path, needed: int, max_bytes: int, cost_of: CostOf, least: int) -> tuple[int, list[Path]]:
    """Evict sealed segments until a new one of at most `needed` bytes fits in `max_bytes` and the free space; return
    the size that has room, and the evicted segments. `cost_of` predicts the seconds to compute a segment's blocks, if
    known. The caller holds the directory's lock. NoRoomError for less room than `least`."""
    usage = survey(directory)
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize if disk.f_blocks else max_bytes  # some systems report no sizes
    limit = min(max_bytes, usage.num_bytes + free)
    excess = usage.num_bytes + usage.num_reserved + needed - limit
    evicted: list[Path] = []
    if excess > 0:
        for segment in worst_first(usage.sealed, cost_of):
            if evict(segment):
                evicted.append(segment.path)
                excess -= segment.size
                if excess <= 0:
                    break
    room = needed - max(0, excess)
    if room < least:
        raise NoRoomError(
            f"{directory} has {format_size(usage.num_bytes)} of {format_size(limit)}, all in use or of another version"
        )
    return room, evicted


def worst_first(segments: list[SegmentFile], cost_of: CostOf) -> list[SegmentFile]:
    now = time.time()
    ranked: list[tuple[float, float, SegmentFile]] = []
    for segment in segments:
        if segment.used_at > now:  # the clock was set back; count the segment as used now
            with contextlib.suppress(OSError):
                os.utime(segment.path)
            segment.used_at = now
        cost_s = cost_of(segment.path)
        if cost_s is None:
            cost_s = read_cost(segment.index_path)
        if cost_s is None:
            cost_s = _scanned_cost(segment)
        if cost_s is not None:
            worth = cost_s / max(1, segment.size) / (now - segment.used_at + _MIN_AGE_S)
            ranked.append((worth, segment.used_at, segment))
    return [segment for _, _, segment in sorted(ranked, key=lambda each: each[:2])]


def _scanned_cost(segment: SegmentFile) -> float | None:
    """Cost of a segment without an index, whose writer was killed. None for another version."""
    try:
        file = OpenFile(segment.path)
        header = read_file_header(file)
        if header is None:  # damaged
            return 0.0
        if header.version not in SEGMENT_VERSIONS:
            return None
        known = Segment(0, segment.path, header.root, header.block_bytes)
        known.scan(file)
        known.save_index()
    except OSError:
        return 0.0
    return sum(row.cost_s for _, row in known.enumerate_rows())


def evict(segment: SegmentFile) -> bool:
    """Unlink a segment and its index, unless it has a writer. Running reads fail."""
    try:
        file = OpenFile(segment.path, os.O_RDWR)
        is_ours = file.lock()
        if is_ours is False or (is_ours is None and not segment.has_index):
            return False
        file.unlink_from(segment.path)
        segment.index_path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
