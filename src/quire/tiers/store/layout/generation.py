"""Two numbers in a shared file that move when some process wrote blocks or deleted some.

They are drawn at random, so that no two processes need to agree on the next. Reading them is one system call (about a
microsecond), which every step can afford; a mapped page would be faster and would end the process if somebody cut the
file. They are hints: whoever misses one finds the same by looking at the directory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from quire.tiers.store.layout.files import OpenFile

NAME = "generation"
_BYTES = 8
UNKNOWN = b""


class Generation:
    """The file of one namespace."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path = path / NAME
        self._flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        self._file: OpenFile | None = None
        with contextlib.suppress(FileNotFoundError):
            self._file = OpenFile(self.path, self._flags)

    def read(self) -> bytes:
        """Written and deleted, as one value to compare."""
        try:
            return os.pread(self._file.fd, 2 * _BYTES, 0) if self._file is not None else UNKNOWN
        except OSError:
            return UNKNOWN

    @staticmethod
    def deletions(value: bytes) -> bytes:
        """The part of a value that moves with deletions."""
        return value[_BYTES:]

    @staticmethod
    def merged(written: bytes, value: bytes) -> bytes:
        """A value after `move` returned `written`, and nothing else has moved."""
        return written + value[len(written) :]

    def move(self, *, deleted: bool = False) -> bytes:
        """Returns what was written."""
        written = os.urandom(2 * _BYTES if deleted else _BYTES)
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fd, written, 0)
        return written

    def reopen_if_replaced(self) -> None:
        """Somebody may have removed the file by hand."""
        if self._file is None or not self._file.is_at(self.path):
            with contextlib.suppress(OSError):
                self._file = OpenFile(self.path, self._flags)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def move_generation(namespace: Path) -> None:
    """Tell the users of another namespace that something changed there."""
    with contextlib.suppress(OSError):
        file = OpenFile(namespace / NAME, os.O_RDWR)
        os.pwrite(file.fd, os.urandom(_BYTES), 0)
        file.close()
