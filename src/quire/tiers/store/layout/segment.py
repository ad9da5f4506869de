"""A segment in memory: one row and one end per record. The `.idx` of a sealed segment has a header, all rows and all
ends."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

from quire.tiers.store.layout.files import OpenFile, write_whole
from quire.tiers.store.layout.record import (
    CHECKSUM_BYTES,
    FILE_HEADER_BYTES,
    HEADER_BYTES,
    MAGIC,
    FileHeader,
    Row,
    data_length,
    decode_header,
    has_checksum,
    with_checksum,
)

NAME = re.compile(r"[0-9a-f]{16}-\d{6,}\.seg")

_ROW = struct.Struct("<32s32sdQ")  # key, parent, cost, epoch; see index.py
_NO_ROW = bytes(_ROW.size)  # a torn or altered record
_INDEX_HEADER = struct.Struct("<8sI4xQQd32s")  # magic, version, file size, block_bytes, cost of all, root
_INDEX_MAGIC = b"quireidx"
_INDEX_HEADER_BYTES = _INDEX_HEADER.size + CHECKSUM_BYTES
_INDEX_VERSION = 2  # an older index is made again
_CHUNK_BYTES = 1 << 20  #: read at once in search of a header


class Segment:
    """One file of records. `number` identifies it in locations, within this process."""

    def __init__(self, number: int, path: Path, root: bytes, block_bytes: int) -> None:
        self.number = number
        self.path = path
        self.root = root
        self.block_bytes = block_bytes
        self.rows = bytearray()
        self._ends = array("Q")  #: offset after each row's record
        self.size = FILE_HEADER_BYTES  #: of the file, up to the last known row
        self.is_sealed = False  #: has an index and never grows again
        self.is_ours = False  #: written by this process
        self.is_gone = False  #: unlinked
        self.num_dead = 0  #: deleted rows
        self.live_cost_s = 0.0  #: predicted seconds to compute its live blocks
        self.used_at = float("-inf")  #: monotonic seconds of the last update of its file time

    @property
    def record_bytes(self) -> int:
        """Size of a plain record, the largest."""
        return HEADER_BYTES + self.block_bytes

    @property
    def num_rows(self) -> int:
        return len(self.rows) // _ROW.size

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".idx")

    def offset(self, row: int) -> int:
        return self._ends[row - 1] if row else FILE_HEADER_BYTES

    def num_bytes(self, row: int) -> int:
        return self._ends[row] - self.offset(row)

    def is_coded(self, row: int) -> bool:
        return self.num_bytes(row) < self.record_bytes

    def row(self, number: int) -> Row:
        return Row(*_ROW.unpack_from(self.rows, number * _ROW.size))

    def enumerate_rows(self, first: int = 0) -> Iterator[tuple[int, Row]]:
        """Numbers and contents of intact rows."""
        for number, fields in enumerate(_ROW.iter_unpack(memoryview(self.rows)[first * _ROW.size :].tobytes()), first):
            row = Row._make(fields)
            if row.key != _NO_KEY:
                yield number, row

    def append(self, row: Row, num_bytes: int) -> None:
        self._add(_ROW.pack(*row), self.size + num_bytes)

    def _add(self, row: bytes, end: int) -> None:
        self.rows += row
        self._ends.append(end)
        self.size = end

    def erase(self, number: int) -> None:
        """Remove a row whose record was erased."""
        self.rows[number * _ROW.size : (number + 1) * _ROW.size] = _NO_ROW

    def load_index(self) -> bool:
        """Load the rows from the index. Returns False if it is missing or damaged."""
        try:
            data = self.index_path.read_bytes()
            size = self.path.stat().st_size
        except OSError:
            return False
        header = _decode_index_header(data[:_INDEX_HEADER_BYTES])
        if header is None or (header[0], header[1], header[3]) != (size, self.block_bytes, self.root):
            return False
        rows = data[_INDEX_HEADER_BYTES:]
        num_rows, rest = divmod(len(rows), _ROW.size + self._ends.itemsize)
        if rest != CHECKSUM_BYTES or not has_checksum(rows):
            return False
        self.rows = bytearray(rows[: num_rows * _ROW.size])
        self._ends = array("Q", rows[num_rows * _ROW.size : -CHECKSUM_BYTES])
        self.size = size
        self.is_sealed = True
        return True

    def save_index(self) -> None:
        """Seal the segment and write its index. A failure only costs time later."""
        cost_s = sum(row.cost_s for _, row in self.enumerate_rows())
        header = _INDEX_HEADER.pack(_INDEX_MAGIC, _INDEX_VERSION, self.size, self.block_bytes, cost_s, self.root)
        with contextlib.suppress(OSError):
            rows = bytes(self.rows) + self._ends.tobytes()
            write_whole(self.index_path, with_checksum(header), with_checksum(rows))
        self.is_sealed = True

    def scan(self, file: OpenFile) -> int:
        """Add rows for new records; return the first's number. A damaged one is lost only if an intact one follows."""
        first, at, size = self.num_rows, self.size, file.size
        while at + HEADER_BYTES <= size:
            header = os.pread(file.fd, HEADER_BYTES, at)
            row = decode_header(self.root, self.block_bytes, header)
            if row is None:
                at = self._find_header(file, at + 1)
                continue
            end = at + HEADER_BYTES + data_length(header)
            if end > size:
                break
            if at > self.size:
                self._add(_NO_ROW, at)
            self._add(_ROW.pack(*row), end)
            at = end
        return first

    def _find_header(self, file: OpenFile, at: int) -> int:
        """The offset of the next intact header, or the file's end."""
        while len(chunk := os.pread(file.fd, _CHUNK_BYTES, at)) >= HEADER_BYTES:
            for found in re.finditer(MAGIC, chunk):
                header = os.pread(file.fd, HEADER_BYTES, at + found.start())
                if decode_header(self.root, self.block_bytes, header) is not None:
                    return at + found.start()
            at += len(chunk) - len(MAGIC) + 1
        return file.size


_NO_KEY = bytes(32)


def read_file_header(file: OpenFile) -> FileHeader | None:
    return FileHeader.decode(os.pread(file.fd, FILE_HEADER_BYTES, 0))


def read_cost(index_path: Path) -> float | None:
    """Predicted seconds to compute a segment's blocks, from its index; None if that is missing or damaged."""
    try:
        with index_path.open("rb") as file:
            header = _decode_index_header(file.read(_INDEX_HEADER_BYTES))
    except OSError:
        return None
    return None if header is None else header[2]


def _decode_index_header(header: bytes) -> tuple[int, int, float, bytes] | None:
    """Decode (file size, block_bytes, cost, root)."""
    if len(header) != _INDEX_HEADER_BYTES or not has_checksum(header):
        return None
    magic, version, size, block_bytes, cost_s, root = _INDEX_HEADER.unpack_from(header)
    return (size, block_bytes, cost_s, root) if (magic, version) == (_INDEX_MAGIC, _INDEX_VERSION) else None
