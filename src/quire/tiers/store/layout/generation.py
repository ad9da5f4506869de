"""Two random numbers in a shared file that change with writes and deletions: hints that cost a microsecond per step.
(They are read, since truncating a mapped page would kill its readers.)"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from quire.tiers.store.layout.files import OpenFile

NAME = "generation"
_BYTES = 8
UNKNOWN = b""


class Generation:
    def __init__(self, path: Path, read_only: bool) -> None:
        self.path = path / NAME
        self._flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        self._file: OpenFile | None = None
        with contextlib.suppress(FileNotFoundError):
            self._file = OpenFile(self.path, self._flags)

    def read(self) -> bytes:
        try:
            return os.pread(self._file.fd, 2 * _BYTES, 0) if self._file is not None else UNKNOWN
        except OSError:
            return UNKNOWN

    @staticmethod
    def deletions(value: bytes) -> bytes:
        """The part of a value that changes with deletions."""
        return value[_BYTES:]

    def bump(self, *, deleted: bool = False) -> bytes:
        """Change the numbers. Returns the written bytes."""
        written = os.urandom(2 * _BYTES if deleted else _BYTES)
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file.fd, written, 0)
        return written

    def reopen_if_replaced(self) -> None:
        if self._file is None or not self._file.is_at(self.path):
            with contextlib.suppress(OSError):
                self._file = OpenFile(self.path, self._flags)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def bump_generation(namespace: Path) -> None:
    """Notify the users of another namespace of a change."""
    with contextlib.suppress(OSError):
        Generation(namespace, read_only=False).bump()
