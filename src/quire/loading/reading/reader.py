"""Read a checkpoint ahead in the order of use: embeddings, layers ascending, then the final norm and the head. Several
reads run at once; uncached files are read with O_DIRECT, at a third of the CPU time."""

from __future__ import annotations

import bisect
import errno
import math
import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.loading.checkpoint import ScatteredEntry, TensorEntry
from quire.loading.errors import ModelLoadError, UnreadableError
from quire.loading.remote import LISTING, RemoteFile, remote_file
from quire.loading.stage_manifest import is_plane_pack
from quire.system.page_cache import resident_share

if TYPE_CHECKING:
    from quire.loading.planes.index import OriginalFile

# By name, since reading begins before the models are imported. A name that matches neither only costs memory or time.
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_\w+|per_layer_\w+|wte|wpe|project_in|\w*token_embd)\.")


@dataclass(frozen=True)
class Run:
    """Contiguous bytes of one file and the tensors in them, or one `ScatteredEntry`."""

    file: Path
    start: int
    end: int
    tensors: tuple[TensorEntry, ...]  #: by offset


def position_in_use(name: str) -> float:
    """Return a tensor's sort key: -1 for embeddings, a layer's index, infinity for the rest, such as vision towers."""
    if "_tower." not in name and (match := _LAYER.search(name)):
        return int(match[1])
    return -1 if _EMBEDDING.search(name) else math.inf


def runs_in_order_of_use(entries: Iterable[TensorEntry]) -> list[Run]:
    """Join the tensors into as few runs as the order allows."""
    runs: list[Run] = []
    tensors: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda entry: (position_in_use(entry.name), entry.file, entry.start)):
        if tensors and not _is_next(entry, tensors[-1]):
            runs.append(_run_of(tensors))
            tensors = []
        tensors.append(entry)
    return [*runs, _run_of(tensors)] if tensors else runs


def run_of_file(file: Path, num_bytes: int, entries: Iterable[TensorEntry]) -> Run:
    """Return the run of a whole file with its header, as the checksum covers it."""
    tensors = [entry for entry in entries if entry.file == file]
    return Run(file, 0, num_bytes, tuple(sorted(tensors, key=lambda entry: (entry.start, entry.end))))


def _is_next(entry: TensorEntry, last: TensorEntry) -> bool:
    if isinstance(entry, ScatteredEntry) or isinstance(last, ScatteredEntry):
        return False
    return (entry.file, entry.start) == (last.file, last.end)


def _run_of(tensors: list[TensorEntry]) -> Run:
    return Run(tensors[0].file, tensors[0].start, tensors[-1].end, tuple(tensors))


class Pace:
    """A device with a bandwidth, one read at a time; idle time is lost. `wait` returns true to give up."""

    def __init__(
        self,
        bandwidth: float | None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        self._bandwidth = bandwidth
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = 0.0  # end of the last read

    def begin(self, num_bytes: int) -> float:
        """Start a read. Returns its end, for `end`."""
        if self._bandwidth is None:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + num_bytes / self._bandwidth
            return self._free_at

    def end(self, due: float) -> None:
        """Wait until the read would end on the device."""
        while due and (ahead_s := due - self._clock()) > 0:
            if self._wait(ahead_s):
                return


PIECE_BYTES = 4 * 2**20  #: size of a read
BUFFER_BYTES = 256 * 2**20  #: limit of read-ahead
NUM_READS = 4  #: concurrent reads
NUM_REMOTE_READS = 8  #: concurrent range requests
_END_S = 2.0  # limit of waiting for running reads
_ALIGNMENT = 4096  # of offsets, lengths and memory; enough for any device
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)


@dataclass(frozen=True, eq=False)
class Piece:
    """Bytes of a file in a buffer, which `ByteReader.release` returns to the reader."""

    run: Run
    start: int  #: in the file
    end: int
    data: memoryview
    buffer: mmap.mmap
    cost: int  #: bytes that were read, coded ones of a decoded file

    def parts(self) -> Iterator[tuple[TensorEntry, int, memoryview]]:
        """Yield the parts of tensors in it: tensor, offset in the tensor, bytes."""
        tensors = self.run.tensors
        for entry in tensors[bisect.bisect_right(tensors, self.start, key=lambda entry: entry.end) :]:
            start, end = max(self.start, entry.start), min(self.end, entry.end)
            if entry.start >= self.end:
                return
            if start < end:
                yield entry, start - entry.start, self.data[start - self.start : end - self.start]


@dataclass(frozen=True)
class _Range:
    run: Run
    start: int
    end: int
    cost: int  #: as in `Piece`


class ByteReader:
    """Reads runs in order, in its own threads; `bandwidth` emulates slower storage, in bytes per second. With
    `is_pinned`, remote files that changed are refused. After the first `num_first` runs it waits for `read_on`: what
    the first stage needs of the processor comes first."""

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        bandwidth: float | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        num_reads: int | None = None,
        uses_direct_io: bool | None = None,
        is_pinned: bool = True,
        num_first: int | None = None,
    ) -> None:
        if num_reads is None:
            num_reads = NUM_REMOTE_READS if runs and (runs[0].file.parent / LISTING).is_file() else NUM_READS
        ranges = [[*_cut(run)] for run in runs]
        self._ranges = [*chain.from_iterable(ranges)]
        self._end = sum(map(len, ranges[:num_first]))  #: of the ranges that may be read
        self._closing = threading.Event()
        self._pace = Pace(bandwidth, wait=self._closing.wait)
        self._max_buffers = max(num_reads, buffer_bytes // (PIECE_BYTES + _ALIGNMENT))
        self._uses_direct_io, self._is_pinned = uses_direct_io, is_pinned
        self._changed = threading.Condition()
        self._free: list[mmap.mmap] = []
        self._num_buffers = 0
        self._next_read = 0  #: index of the next range to read
        self._next_given = 0
        self._done: dict[int, Piece | BaseException] = {}
        self._files: dict[Path, Any] = {}  #: `_OpenFile` and the like
        count = min(num_reads, len(self._ranges))
        self._threads = [threading.Thread(target=self._work, name="quire-read", daemon=True) for _ in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def buffered_bytes(self) -> int:
        return self._num_buffers * (PIECE_BYTES + _ALIGNMENT)

    @property
    def uses_direct_io(self) -> bool:
        """Whether any file bypasses the page cache."""
        return any(file.is_direct for file in self._files.values())

    def read_on(self) -> None:
        with self._changed:
            self._end = len(self._ranges)
            self._changed.notify_all()

    def next_piece(self, before_wait: Callable[[], None] = lambda: None) -> Piece | None:
        """Return the next piece, after `before_wait` if it has not arrived; None after the last one, or once closed.
        Raises ModelLoadError if reading failed."""
        with self._changed:
            index = self._next_given
            if index == len(self._ranges):
                return None
            if index not in self._done:
                before_wait()
            self._changed.wait_for(lambda: index in self._done or self._closing.is_set())
            if self._closing.is_set():
                return None
            piece = self._done.pop(index)
            self._next_given += 1
        if isinstance(piece, BaseException):
            raise piece
        return piece

    def release(self, piece: Piece) -> None:
        with self._changed:
            if len(self._free) < len(self._ranges) - self._next_read:
                self._free.append(piece.buffer)
                self._changed.notify_all()
            else:  # towards the end buffers are freed while the model grows
                self._num_buffers -= 1

    def stop(self) -> None:
        """Start and return no more reads."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait shortly for running reads; one from a network may hang."""
        self.stop()
        for thread in self._threads:
            if thread.is_alive():  # Ctrl-C may have kept it from starting
                thread.join(_END_S)
        with self._changed:
            self._done.clear()
            self._free.clear()
            self._num_buffers = 0
        if not any(thread.is_alive() for thread in self._threads):
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _work(self) -> None:
        while (taken := self._next_range()) is not None:
            index, each, buffer = taken
            result: Piece | BaseException
            try:
                result = self._read(each, buffer or _make_buffer(each.run.file))
            except OSError as error:
                result = _unread(each.run.file, error.strerror or str(error))
            except BaseException as error:  # re-raised by next_piece
                result = error
            with self._changed:
                self._done[index] = result
                self._changed.notify_all()
            if isinstance(result, BaseException):
                return

    def _next_range(self) -> tuple[int, _Range, mmap.mmap | None] | None:
        """Wait for room, and return the next range and a free buffer, if any. In order, so the first has a buffer."""
        with self._changed:
            while not self._closing.is_set() and self._next_read < len(self._ranges):
                if self._next_read < self._end and (self._free or self._num_buffers < self._max_buffers):
                    index, buffer = self._next_read, self._free.pop() if self._free else None
                    self._next_read += 1
                    self._num_buffers += buffer is None
                    return index, self._ranges[index], buffer
                self._changed.wait()
        return None

    def _read(self, each: _Range, buffer: mmap.mmap) -> Piece:
        due = self._pace.begin(each.cost)
        file, tensors = self._open(each.run.file), each.run.tensors
        if tensors and isinstance(tensors[0], ScatteredEntry):
            data = file.gather(tensors[0].ranges(each.start, each.end), buffer)
        else:
            data = file.read(each.start, each.end, buffer)
        self._pace.end(due)
        return Piece(each.run, each.start, each.end, data, buffer, each.cost)

    def _open(self, path: Path) -> Any:
        with self._changed:
            if path not in self._files:
                if (original := original_of(path)) is not None:
                    from quire.loading.planes.decoding import DecodedReads  # with numpy

                    self._files[path] = DecodedReads(original, lambda path, *range_: self._open(path).read(*range_))
                elif (remote := remote_file(path)) is not None:
                    self._files[path] = _RemoteReads(remote, self._is_pinned)
                else:
                    self._files[path] = _OpenFile(path, self._uses_direct_io)
            return self._files[path]


class _RemoteReads:
    """A remote file, as `_OpenFile`."""

    is_direct = False

    def __init__(self, file: RemoteFile, is_pinned: bool) -> None:
        self._read = (file if is_pinned else replace(file, etag=None, modified_ns=0)).reader()

    def read(self, start: int, end: int, buffer: mmap.mmap) -> memoryview:
        room = memoryview(buffer)[: end - start]
        room[:] = self._read(start, end)
        return room

    def gather(self, ranges: Iterable[tuple[int, int]], buffer: mmap.mmap) -> memoryview:
        """Read the ranges and the bytes between them at once: one request takes as long as a hundred rows."""
        ranges = list(ranges)
        first, last = ranges[0][0], ranges[-1][1]
        whole = self._read(first, last)
        return memoryview(bytearray().join(whole[start - first : end - first] for start, end in ranges))

    def close(self) -> None:
        """Connections end with the last reference."""


class _OpenFile:
    """An open file, read past the page cache if that works and helps."""

    def __init__(self, path: Path, uses_direct_io: bool | None) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._direct, self._is_refused = -1, False
        if uses_direct_io is None:
            uses_direct_io = (resident_share(self._file) or 0.0) < 0.5  # most of a cached file is read from memory
        if uses_direct_io and _O_DIRECT:
            try:
                self._direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a file system without direct I/O
                    raise

    @property
    def is_direct(self) -> bool:
        return self._direct >= 0 and not self._is_refused

    def read(self, start: int, end: int, buffer: mmap.mmap) -> memoryview:
        """Read a range into the buffer and return its view; raises OSError, or ModelLoadError for a short file."""
        first = start // _ALIGNMENT * _ALIGNMENT
        room = memoryview(buffer)[: -(-(end - first) // _ALIGNMENT) * _ALIGNMENT]
        position = first
        while position < end:
            count = self._read_some(position, room[position - first :])
            if not count:
                raise self._ended()
            position += count
        return room[start - first : end - first]

    def gather(self, ranges: Iterable[tuple[int, int]], buffer: mmap.mmap) -> memoryview:
        """Read ranges through the page cache, since another rank reads the bytes between; raises as `read`."""
        room, filled = memoryview(buffer), 0
        ranges = list(ranges)
        if self._direct >= 0:  # not cached: request all at once, rather than wait for the disk each time
            for start, end in ranges:
                os.posix_fadvise(self._file, start, end - start, os.POSIX_FADV_WILLNEED)
        for start, end in ranges:
            while start < end:
                count = os.preadv(self._file, [room[filled : filled + end - start]], start)
                if not count:
                    raise self._ended()
                start, filled = start + count, filled + count
        return room[:filled]

    def _ended(self) -> ModelLoadError:
        size = os.fstat(self._file).st_size
        return ModelLoadError(
            f"{self._path} ends at byte {size}, and was longer when loading started; copy it again, and do not change "
            "it during loading"
        )

    def _read_some(self, position: int, room: memoryview) -> int:
        if self.is_direct and not position % _ALIGNMENT:  # a short read may end at any byte
            try:
                return os.preadv(self._direct, [room], position)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._is_refused = True  # some overlays open with O_DIRECT but refuse reads
        return os.preadv(self._file, [room], position)

    def close(self) -> None:
        for file in (self._file, self._direct):
            if file >= 0:
                os.close(file)


def _cut(run: Run) -> Iterator[_Range]:
    """Cut at multiples of a piece's size, or a decoded file between its chunks."""
    start, original = run.start, original_of(run.file)
    while start < run.end:
        end = min(run.end, (start // PIECE_BYTES + 1) * PIECE_BYTES)
        if original is not None:
            chunks = original.chunks_in(start, min(run.end, start + PIECE_BYTES))
            whole = [chunk.end for chunk in chunks if chunk.end <= start + PIECE_BYTES]
            end = min(run.end, max(whole, default=start + PIECE_BYTES))
        yield _Range(run, start, end, cost_of(original, start, end))
        start = end


def cost_of(original: OriginalFile | None, start: int, end: int) -> int:
    """Return the bytes that reading a range takes, or about those of scattered columns."""
    return end - start if original is None else original.stored_bytes(start, end)


def original_of(path: Path) -> OriginalFile | None:
    """See `original_file`. Numpy is imported for packs with planes only."""
    if path.is_file() or not is_plane_pack(path.parent):
        return None
    from quire.loading.planes.index import original_file

    return original_file(path)


def _make_buffer(file: Path) -> mmap.mmap:
    try:
        return mmap.mmap(-1, PIECE_BYTES + _ALIGNMENT)
    except OSError as error:
        raise UnreadableError(
            f"no memory for buffers to read {file} ({error.strerror or error}); end other programs, or raise the "
            "memory limit"
        ) from None


def _unread(file: Path, reason: str) -> UnreadableError:
    return UnreadableError(f"{file} cannot be read ({reason}); check its disk or network, or copy it again")
