"""Read the original files of a pack with planes: decode their chunks and check each one's checksum."""

from __future__ import annotations

import io
import mmap
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from quire.kernels.planes import FORMATS, ExponentCoder, join_words
from quire.loading.errors import ModelLoadError
from quire.loading.planes.index import CodedChunk, OriginalFile, Part
from quire.loading.remote import RangeStream, open_file

ReadStored = Callable[[Path, int, int, mmap.mmap], memoryview]
_ALIGNMENT = 4096  # of direct I/O


class DecodedReads(threading.local):
    """An original file that is decoded in the threads that read it, each with its own buffers. `read_stored` reads a
    range of a coded file into a buffer, which has two pages more, or into memory of its own."""

    is_direct = False

    def __init__(self, file: OriginalFile, read_stored: ReadStored) -> None:
        self._file, self._read_stored = file, read_stored
        self._coder = ExponentCoder()
        self._buffers: list[mmap.mmap] = []  #: for each part of a chunk
        self._last: tuple[CodedChunk | None, memoryview] = None, memoryview(b"")  #: decoded for a part of it

    def read(self, start: int, end: int, buffer: Any) -> memoryview:
        """Decode a range into a buffer and return its view. Raises OSError, or ModelLoadError for a damaged chunk."""
        room = memoryview(buffer)[: end - start]
        header = self._file.header[start:end]
        room[: len(header)] = header
        for chunk in self._file.chunks_in(start, end):
            if start <= chunk.start and chunk.end <= end:
                self._decode(chunk, room[chunk.start - start : chunk.end - start])
                continue
            if self._last[0] is not chunk:
                decoded = memoryview(bytearray(chunk.end - chunk.start))
                self._decode(chunk, decoded)
                self._last = chunk, decoded
            first, last = max(start, chunk.start), min(end, chunk.end)
            room[first - start : last - start] = self._last[1][first - chunk.start : last - chunk.start]
        return room

    def gather(self, ranges: Iterable[tuple[int, int]], buffer: Any) -> memoryview:
        """Decode ascending ranges, one after the other; raises as `read`."""
        room, filled = memoryview(buffer), 0
        for start, end in ranges:
            filled += len(self.read(start, end, room[filled:]))
        return room[:filled]

    def close(self) -> None:
        """Coded files are closed by their owner."""

    def _decode(self, chunk: CodedChunk, out: memoryview) -> None:
        top, *others = [self._read_part(number, chunk, part) for number, part in enumerate(chunk.parts)]
        if not chunk.top_bits:
            out[:] = top
            return
        form, size = FORMATS[chunk.entry.dtype], chunk.entry.shape[-1]
        num_rows = len(out) // (size * form.item_bytes)
        words = np.frombuffer(out, f"<u{form.item_bytes}").reshape(num_rows, size)
        if not chunk.frame_bytes:
            join_words(words, form, chunk.top_bits, None, None, np.frombuffer(top, np.uint8))
            return
        in_top, _ = form.plane_bytes(num_rows, size, chunk.top_bits)
        frame, planes = top[: chunk.frame_bytes], np.frombuffer(top, np.uint8)[chunk.frame_bytes :]
        try:
            exponents = self._coder.decode(frame, num_rows * size)
        except ValueError as error:
            raise _damaged(chunk, chunk.parts[0], str(error)) from None
        rest = np.frombuffer(others[0], np.uint8) if others else planes[in_top:]
        join_words(words, form, chunk.top_bits, exponents, planes[:in_top], rest)

    def _read_part(self, number: int, chunk: CodedChunk, part: Part) -> memoryview:
        needed = part.end - part.start + 2 * _ALIGNMENT
        if number == len(self._buffers) or len(self._buffers[number]) < needed:
            self._buffers[number : number + 1] = [mmap.mmap(-1, needed)]
        data = self._read_stored(part.file, part.start, part.end, self._buffers[number])
        if xxhash.xxh3_64_hexdigest(data) != part.checksum:
            raise _damaged(chunk, part, "its checksum differs")
        return data


def _damaged(chunk: CodedChunk, part: Part, why: str) -> ModelLoadError:
    return ModelLoadError(
        f"{part.file} is damaged: {why} at byte {part.start}, in {chunk.entry.name}; copy it again from the pack's "
        "origin, and see `quire stages verify`"
    )


def read_stored(path: Path, start: int, end: int, _: mmap.mmap) -> memoryview:
    """Read a range of a coded file into memory of its own."""
    with open_file(path) as file:
        file.seek(start)
        return memoryview(file.read(end - start))


def open_original(file: OriginalFile) -> io.BufferedReader:
    """Open an original file to read it decoded. Reads raise ModelLoadError."""
    reads = DecodedReads(file, read_stored)
    stream = RangeStream(file.num_bytes, lambda start, end: reads.read(start, end, bytearray(end - start)))
    return io.BufferedReader(stream, 2**18)
