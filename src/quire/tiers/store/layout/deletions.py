"""Tombstones of deleted keys, in a file that every process of a namespace appends to.

    header       magic, version, base epoch, root, checksum: 64 bytes
    tombstone    key, epoch, checksum: 48 bytes

The n-th deletion has epoch n. A record carries the epoch at which its storage was decided, and is dead if its key was
deleted later. So a block in flight stays deleted wherever it is written, and no clock is needed. After a damaged
tombstone, or one of the key 0, every older record is dead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.tiers.store.layout.files import OpenFile, append, write_whole
from quire.tiers.store.layout.record import CHECKSUM_BYTES, KEY_BYTES, VERSION, Row, has_checksum, with_checksum

logger = logging.getLogger("quire")

NAME = "deletions"

_MAGIC = b"quiredel"
_HEADER = struct.Struct("<8sI4xQ32s")  # magic, version, base epoch, root
_TOMBSTONE = struct.Struct("<32sQ")  # key, epoch
_HEADER_BYTES = _HEADER.size + CHECKSUM_BYTES
_EVERYTHING = bytes(KEY_BYTES)
_TOMBSTONE_BYTES = _TOMBSTONE.size + CHECKSUM_BYTES


class Deletions:
    """The tombstones that one process has read. One thread at a time."""

    def __init__(self, path: Path, root: bytes, read_only: bool) -> None:
        self.path = path / NAME
        self._root = root
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._file: OpenFile | None = None
        self._end = _HEADER_BYTES  #: of the part that was read
        self.epochs: dict[bytes, int] = {}  #: last epoch by key
        self.floor = 0  #: records of earlier epochs are dead
        self.epoch = 0  #: of the latest deletion
        self.latest = 0  #: latest epoch of any record; greater than `epoch` only if the file was lost
        self.forgotten = 0  #: deletions up to this epoch have left `epochs`
        self.has_missed = False  #: the file was filled and emptied before this process read it
        self._emptied_at = 0
        self._open(read_only)

    @property
    def next_epoch(self) -> int:
        return max(self.epoch, self.latest) + 1

    def is_dead(self, row: Row) -> bool:
        """Whether a record, or one that it is chained after, was deleted since it was stored."""
        if row.epoch < self.floor or self.epochs.get(row.key, 0) > row.epoch:
            return True
        epoch = self.epochs.get(row.parent, 0)
        if epoch > row.epoch:
            self.epochs[row.key] = epoch  # so that blocks chained after this one are dead too
            return True
        return False

    @property
    def size(self) -> int:
        return self._end

    @property
    def has_any(self) -> bool:
        return self._end > _HEADER_BYTES

    def refresh(self) -> list[bytes]:
        """Read new tombstones. Returns the deleted keys, with possible repetitions."""
        found: list[bytes] = []
        with contextlib.suppress(OSError):
            if self._file is not None:
                found = self._read_on(self._file)
            if self._file is None or not self._file.is_at(self.path):  # emptied, or removed by a user
                if self._file is not None:
                    found += self._read_on(self._file)  # no process appends to it any more
                self._open(read_only=self._flags == os.O_RDONLY)
                if self._file is not None:
                    found += self._read_on(self._file)
        return found

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        while True:
            file = OpenFile(self.path, os.O_RDWR)
            file.wait_for_lock()
            if file.is_at(self.path):  # otherwise it was emptied meanwhile
                break
            file.close()
        try:
            yield
        finally:
            file.close()

    def append(self, keys: Iterable[bytes], epoch: int) -> None:
        """Append tombstones, within `exclusively` and after a refresh."""
        assert self._file is not None
        data = b"".join(with_checksum(_TOMBSTONE.pack(key, epoch)) for key in keys)
        append(self._file, self._end, data)

    def repair(self) -> None:
        """Delete everything if the last tombstone is damaged: it may have named any key."""
        if self._file is not None and self._file.size >= self._end + _TOMBSTONE_BYTES:
            with self.exclusively():
                self.refresh()
                if self._file.size >= self._end + _TOMBSTONE_BYTES:
                    logger.warning("kv store: %s is damaged; earlier blocks are not used any more", self.path)
                    self.append([_EVERYTHING], self.next_epoch)
                    os.ftruncate(self._file.fd, self._end + _TOMBSTONE_BYTES)
                    self.refresh()

    def empty(self) -> None:
        """Start a new file, within `exclusively`, after a refresh, and without dead records."""
        write_whole(self.path, self._header(self.epoch))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, read_only: bool) -> None:
        for _ in range(2):
            try:
                file = OpenFile(self.path, self._flags)
                header = os.pread(file.fd, _HEADER_BYTES, 0)
            except FileNotFoundError:
                if read_only:
                    return
                write_whole(self.path, self._header(self.epoch))
                continue
            if len(header) == _HEADER_BYTES and has_checksum(header):
                self._begin(_HEADER.unpack_from(header)[2])
            else:
                logger.warning("kv store: the header of %s is damaged", self.path)
            self._file, self._end = file, _HEADER_BYTES
            return

    def _begin(self, base: int) -> None:
        """Start a file that follows `base` deletions."""
        if self._file is not None:
            self.has_missed |= base > self.epoch
            self.epochs = {key: epoch for key, epoch in self.epochs.items() if epoch > self._emptied_at}
            self.forgotten = base if base > self.epoch else self._emptied_at
            self._emptied_at = base
        self.epoch = max(self.epoch, base)

    def _header(self, epoch: int) -> bytes:
        return with_checksum(_HEADER.pack(_MAGIC, VERSION, epoch, self._root))

    def _read_on(self, file: OpenFile) -> list[bytes]:
        """Read and apply new tombstones. Returns their keys."""
        data = os.pread(file.fd, max(0, file.size - self._end), self._end)
        found: list[bytes] = []
        num_damaged = 0
        for at in range(0, len(data) - _TOMBSTONE_BYTES + 1, _TOMBSTONE_BYTES):
            tombstone = data[at : at + _TOMBSTONE_BYTES]
            if not has_checksum(tombstone):
                num_damaged += 1  # or being written, if none follows
                continue
            key, epoch = _TOMBSTONE.unpack_from(tombstone)
            self.epoch = max(self.epoch, epoch)
            if key == _EVERYTHING:
                self.floor = max(self.floor, epoch)
            else:
                self.epochs[key] = max(epoch, self.epochs.get(key, 0))
                found.append(key)
            self._end += (num_damaged + 1) * _TOMBSTONE_BYTES
            if num_damaged:
                logger.warning("kv store: %s is damaged; earlier blocks are not used any more", self.path)
                self.floor, num_damaged = self.epoch, 0
        return found
