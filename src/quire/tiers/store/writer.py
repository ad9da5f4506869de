"""Append blocks to the active segment of this process."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from quire.config import format_size
from quire.tiers.store.catalog import Catalog
from quire.tiers.store.eviction import NoRoomError, make_room, survey
from quire.tiers.store.layout.coding import CodingTally, decode, encode
from quire.tiers.store.layout.files import OpenFile, append, locked, make_directory, move_records
from quire.tiers.store.layout.generation import bump_generation
from quire.tiers.store.layout.namespace import Namespace
from quire.tiers.store.layout.record import (
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    SEGMENT_VERSIONS,
    Buffer,
    FileHeader,
    Row,
    encode_record,
)
from quire.tiers.store.layout.segment import Segment

logger = logging.getLogger("quire")

SEGMENT_BYTES = 256 << 20
_MIN_ROWS = 4  #: per segment
_TRIAL_BYTES = 2 << 20  #: of a segment, to measure reads with
_PAUSE_S = 5.0  #: after the disk was full or failed


class ActiveSegment:
    """The locked segment that this process writes. It has a temporary name until its header is written."""

    def __init__(self, segment: Segment, capacity: int) -> None:
        self.segment = segment
        temporary = segment.path.with_suffix(".tmp")
        self.file = OpenFile(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            self.file.lock()
            header = FileHeader(SEGMENT_VERSIONS[-1], segment.block_bytes, capacity, segment.root)
            append(self.file, 0, header.encode())
            temporary.rename(segment.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._capacity = capacity

    def count_fitting(self, sizes: Sequence[int]) -> int:
        """How many records of these sizes fit."""
        room = self._capacity - self.segment.size
        return sum(end <= room for end in itertools.accumulate(sizes))

    def write(self, parts: Sequence[Buffer]) -> int:
        """Append records, two buffers each. Returns how many are complete; raises OSError if all failed."""
        num_done, error = move_records(os.pwritev, self.file, parts, self.segment.size)
        if error is not None and not num_done:
            raise error
        return num_done

    def seal(self) -> None:
        """Write the index and close the file, without the rest of a failed write."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.file.fd, self.segment.size)
        self.segment.save_index()
        self.segment.is_ours = False
        self.file.close()


class Writer:
    """Appends batches of records; disk errors pause it instead of raising. Its user holds `busy`."""

    def __init__(
        self, namespace: Namespace, catalog: Catalog, max_bytes: int, coded_kind: int | None, tally: CodingTally
    ) -> None:
        self.busy = threading.Lock()
        self.active: ActiveSegment | None = None
        self._namespace = namespace
        self._catalog = catalog
        self._coded_kind = coded_kind
        self._tally = tally
        self._pays_to_code, self._is_measured = True, False
        self._max_bytes = max_bytes
        self._record_bytes = HEADER_BYTES + namespace.block_bytes
        least = FILE_HEADER_BYTES + _MIN_ROWS * self._record_bytes
        if max_bytes < least:
            raise ValueError(
                f"a store of {format_size(max_bytes)} has no room for {_MIN_ROWS} blocks of "
                f"{format_size(namespace.block_bytes)}; it takes at least {format_size(least)}"
            )
        self.segment_bytes = max(least, min(SEGMENT_BYTES, max_bytes // 8))
        self._writer = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._paused_until = float("-inf")
        self._is_failing = False  #: a warning was logged, and no write has succeeded since

    @property
    def is_paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def append(self, rows: Sequence[Row], data: Sequence[memoryview], codes: Sequence[bool]) -> int:
        """Write records in order, in as few segments as possible, coded where that is smaller and `codes` says so or it
        pays. Returns how many were written."""
        num_done, root, cipher = 0, self._namespace.root, self._namespace.cipher
        codes = [each or self._pays_to_code for each in codes]
        coded = [self._code(block) if each else None for block, each in zip(data, codes, strict=True)]
        parts: list[Buffer] = []
        for row, block, shorter in zip(rows, data, coded, strict=True):
            parts += encode_record(root, row, block, cipher, self._coded_kind, shorter)
        sizes = [len(header) + len(content) for header, content in zip(parts[::2], parts[1::2], strict=True)]
        try:
            while num_done < len(rows) and not self.is_paused:
                active = self._segment_for(sizes[num_done:])
                end = num_done + active.count_fitting(sizes[num_done:])
                num_written = active.write(parts[2 * num_done : 2 * end])
                written = slice(num_done, num_done + num_written)
                if self._catalog.append(active.segment, zip(rows[written], sizes[written], strict=True)):
                    num_done += num_written
                if written.stop < end:  # the disk is full
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if not self._is_measured and active.segment.size >= _TRIAL_BYTES:
                    self._measure(active, [each for each in coded if each is not None])
            if num_done and self._is_failing:
                self._is_failing = False
                logger.warning("kv store: writing works again")
        except OSError as error:
            self._pause(error)
        return num_done

    def _measure(self, active: ActiveSegment, coded: Sequence[Buffer]) -> None:
        """Measure once whether reading the bytes that coding saves takes longer than decoding, without cached pages."""
        file, size, block = active.file, _TRIAL_BYTES, memoryview(bytearray(self._namespace.block_bytes))
        if self._coded_kind is None or not coded:
            return
        began = time.perf_counter()
        with contextlib.suppress(AttributeError, OSError):
            os.fdatasync(file.fd)
            os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            times = [time.perf_counter()]
            file.read_ahead(0, size)
            os.pread(file.fd, size, 0)
            times.append(time.perf_counter())
            for data in coded:
                decode(self._coded_kind, memoryview(data), block)
            times.append(time.perf_counter())
            saved_bytes = len(coded) * len(block) - sum(len(data) for data in coded)
            self._pays_to_code = (times[1] - times[0]) / size > (times[2] - times[1]) / saved_bytes
        self._is_measured = True
        self._tally.seconds += time.perf_counter() - began

    def _code(self, block: memoryview) -> bytes | None:
        """Code a block, if that is smaller."""
        if self._coded_kind is None:
            return None
        began = time.perf_counter()
        coded = encode(self._coded_kind, block)
        self._tally.seconds += time.perf_counter() - began
        self._tally.saved_bytes += 0 if coded is None else len(block) - len(coded)
        return coded

    def erase(self, keys: Sequence[bytes]) -> None:
        """Erase blocks that were deleted while they were written."""
        for location in self._catalog.locate(keys):
            if location is not None:
                segment, number = location
                with contextlib.suppress(OSError):
                    file = OpenFile(segment.path, os.O_RDWR)
                    os.pwrite(file.fd, bytes(segment.num_bytes(number)), segment.offset(number))
                self._catalog.erase_row(segment, number)
                if segment.is_sealed:
                    segment.save_index()

    def free_space(self, num_bytes: int) -> None:
        """Evict until a full disk has this much room."""
        with locked(self._namespace.lock_path), contextlib.suppress(NoRoomError):
            self._make_room(num_bytes, 0)

    def check_room(self) -> None:
        """Evict segments beyond the limit, which may have been lowered. Raises NoRoomError on a full disk."""
        directory = self._namespace.lock_path.parent
        with contextlib.suppress(NoRoomError):
            self._make_room(0, 0)
        disk = os.statvfs(directory)
        least = FILE_HEADER_BYTES + _MIN_ROWS * self._record_bytes
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < least and not survey(directory).sealed:
            raise NoRoomError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def new_segment(self, capacity: int, least: int | None = None) -> ActiveSegment:
        """Make room for a segment and create it."""
        with locked(self._namespace.lock_path):
            make_directory(self._namespace.path)
            room = self._make_room(capacity, least or capacity)
            path = self._namespace.path / f"{self._writer}-{next(self._numbers):06}.seg"
            return self._catalog.new_segment(path, lambda segment: ActiveSegment(segment, room))

    def seal(self) -> None:
        if self.active is not None:
            active, self.active = self.active, None
            if not active.segment.is_gone:
                active.seal()

    def _segment_for(self, sizes: Sequence[int]) -> ActiveSegment:
        """The active segment if records of these sizes fit, else a new one."""
        active = self.active
        if active is not None and (active.segment.is_gone or active.count_fitting(sizes) < len(sizes)):
            self.seal()
        if self.active is None:
            least = max(self.segment_bytes // 16, FILE_HEADER_BYTES + self._record_bytes)
            self.active = self.new_segment(self.segment_bytes, least)
        return self.active

    def _live_cost(self, path: Path) -> float | None:
        if path.parent != self._namespace.path:
            return None
        with self._catalog.lock:
            segment = self._catalog.segments.get(path.name)
            return None if segment is None else segment.live_cost_s

    def _make_room(self, needed: int, least: int) -> int:
        """See `make_room`. Returns the size that has room."""
        directory = self._namespace.lock_path.parent
        room, evicted = make_room(directory, needed, self._max_bytes, self._live_cost, least)
        for path in evicted:
            self._catalog.stats.evicted_segments += 1
            segment = self._catalog.segments.get(path.name) if path.parent == self._namespace.path else None
            if segment is not None:
                self._catalog.remove_segment(segment)
        for namespace in {path.parent for path in evicted}:
            bump_generation(namespace)
        return room

    def _pause(self, error: OSError) -> None:
        self._catalog.stats.write_errors += 1
        self._paused_until = time.monotonic() + _PAUSE_S
        with contextlib.suppress(OSError):
            self.seal()  # so that it can be evicted
        if not self._is_failing:
            self._is_failing = True
            logger.warning("kv store: writing failed, and is retried every few seconds: %s", error.strerror or error)
