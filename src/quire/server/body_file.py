"""A large body while it arrives: in memory that another process can read, so that nobody has to send it there.

Knows bytes and file descriptors; knows nothing about HTTP or what the bytes say.
"""

from __future__ import annotations

import os
from tempfile import NamedTemporaryFile
from typing import IO


class BodyFile:
    """Bytes that are there until `close`: in memory on Linux, elsewhere in a temporary file."""

    def __init__(self) -> None:
        self._file: IO[bytes]
        if hasattr(os, "memfd_create"):
            self._file = os.fdopen(os.memfd_create("body"), "w+b", buffering=0)
            self._path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        else:
            self._file = NamedTemporaryFile(prefix="body-", buffering=0)  # noqa: SIM115 - `close` closes it
            self._path = self._file.name
        self._is_taken = False

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def take_path(self) -> str:
        """Where any process of this user can read them; `take` then gives none."""
        self._is_taken = True
        return self._path

    def take(self) -> bytes:
        """All of them, once."""
        if self._is_taken:
            return b""
        self._is_taken = True
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        self._file.close()
