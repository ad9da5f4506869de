"""ServerlessLLM's loader in Quire's server, as a baseline: the design of section 4 of the paper (OSDI 2024), our code.

The checkpoint is one file of contiguous tensors with aligned data, in the order of the original. Several threads read
chunks of 16 MiB of the whole file past the page cache into a pool of pinned buffers; each chunk is copied once, to the
tensors that it covers. The first token waits for the whole model. All else is Quire's, and reading starts as early.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import quire.startup
from quire.loading.checkpoint import SINGLE_FILE, TensorEntry, weight_files
from quire.loading.reading.reader import Pace, Piece, Run

CHUNK_BYTES = 16 * 2**20  #: the paper's
NUM_THREADS = 4
NUM_CHUNKS = 16  #: in the pool
_ALIGNMENT = 4096
_start = quire.startup.start_engine  # before `main` replaces it


def convert(directory: Path, out: Path) -> None:
    """Write a checkpoint in one file with aligned data, which other readers of safetensors understand."""
    out.mkdir()
    for path in directory.iterdir():
        if path.is_file() and not path.name.startswith("model") and path.name != "quire-stages.json":
            (out / path.name).write_bytes(path.read_bytes())
    header: dict[str, Any] = {}
    files, size = [], 0
    for path in weight_files(directory):
        with path.open("rb") as file:
            start = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(start))
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            header[name] = {**entry, "data_offsets": [offset + size for offset in entry["data_offsets"]]}
        files.append((path, start + 8))
        size += path.stat().st_size - start - 8
    packed = json.dumps(header).encode()
    packed += b" " * (-(len(packed) + 8) % _ALIGNMENT)
    with (out / SINGLE_FILE).open("wb") as target:
        target.write(len(packed).to_bytes(8, "little") + packed)
        for path, start in files:
            with path.open("rb") as source:
                source.seek(start)
                while data := source.read(CHUNK_BYTES):
                    target.write(data)


class ChunkReader:
    """Reads whole files in chunks, in their own order. In the place of `quire.loading.reading.reader.ByteReader`."""

    uses_direct_io = True

    def __init__(self, runs: Sequence[Run], *, bandwidth: float | None = None, **_: object) -> None:
        self._chunks = [
            (run, start, min(run.end, start + CHUNK_BYTES))
            for run in runs
            for start in range(run.start - run.start % _ALIGNMENT, run.end, CHUNK_BYTES)
        ]
        self._closing = threading.Event()
        self._pace = Pace(bandwidth, wait=self._closing.wait)
        self._changed = threading.Condition()
        self._free: list[mmap.mmap] = []
        self._next = self._given = 0
        self._done: dict[int, Piece | BaseException] = {}
        self._files: dict[Path, int] = {}
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(NUM_THREADS)]

    @property
    def buffered_bytes(self) -> int:
        return min(NUM_CHUNKS, len(self._chunks)) * CHUNK_BYTES

    def start(self) -> None:
        self._files = {run.file: os.open(run.file, os.O_RDONLY | os.O_DIRECT) for run, _, _ in self._chunks}
        self._free = [_pinned() for _ in range(min(NUM_CHUNKS, len(self._chunks)))]
        for thread in self._threads:
            thread.start()

    def next_piece(self, before_wait: Callable[[], None] = lambda: None) -> Piece | None:
        before_wait()
        with self._changed:
            self._changed.wait_for(
                lambda: self._given in self._done or self._given == len(self._chunks) or self._closing.is_set()
            )
            if self._given not in self._done or self._closing.is_set():
                return None
            piece = self._done.pop(self._given)
            self._given += 1
        if isinstance(piece, BaseException):
            raise piece
        return piece

    def release(self, piece: Piece) -> None:
        with self._changed:
            self._free.append(piece.buffer)
            self._changed.notify_all()

    def stop(self) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
        for file in self._files.values():
            os.close(file)
        self._files = {}
        self._free.clear()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._free or self._next == len(self._chunks) or self._closing.is_set())
                if self._next == len(self._chunks) or self._closing.is_set():
                    return
                index, buffer = self._next, self._free.pop()
                self._next += 1
            result: Piece | BaseException
            try:
                result = self._read(*self._chunks[index], buffer)
            except BaseException as error:  # re-raised by next_piece
                result = error
            with self._changed:
                self._done[index] = result
                self._changed.notify_all()

    def _read(self, run: Run, start: int, end: int, buffer: mmap.mmap) -> Piece:
        due, position = self._pace.begin(end - start), start
        while position < end:
            count = os.preadv(self._files[run.file], [memoryview(buffer)[position - start :]], position)
            if not count:
                raise OSError(f"{run.file} is truncated")
            position += count
        self._pace.end(due)
        return Piece(run, start, end, memoryview(buffer)[: end - start], buffer, end - start)


def _pinned() -> mmap.mmap:
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(CHUNK_BYTES)):
        raise OSError(ctypes.get_errno(), "the buffers of ServerlessLLM's loader cannot be pinned; raise ulimit -l")
    return buffer


def _in_file_order(entries: Iterable[TensorEntry]) -> list[Run]:
    by_offset = tuple(sorted(entries, key=lambda entry: (entry.file, entry.start)))
    return [Run(by_offset[0].file, by_offset[0].start, by_offset[-1].end, by_offset)] if by_offset else []


def start_engine(config: Any, *, memory_share: float) -> Any:
    """In the engine's process: as `quire.startup.start_engine`, with this loader."""
    place = "quire.loading.reading.checkpoint_reading"
    with patch(f"{place}.ByteReader", ChunkReader), patch(f"{place}.runs_in_order_of_use", _in_file_order):
        return _start(config, memory_share=memory_share)


def main() -> None:
    """`quire` with this loader."""
    quire.startup.start_engine = start_engine
    from quire.cli import main as run

    run()
