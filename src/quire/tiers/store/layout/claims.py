"""Claims: the process that holds the lock of one byte of a shared file computes the key.

Open file description locks (Linux) exclude two stores of one process too, and end with their process. Without such
locks every process computes for itself.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
from pathlib import Path

from quire.tiers.store.layout.files import OpenFile

logger = logging.getLogger("quire")

NAME = "claims"
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid: struct flock of 64-bit Linux
_MAX_OFFSET = 2**62


class Claims:
    def __init__(self, path: Path, read_only: bool) -> None:
        self._file: OpenFile | None = None
        self.held: set[bytes] = set()
        if not read_only and sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
            self._file = OpenFile(path / NAME, os.O_RDWR | os.O_CREAT)
        elif not read_only:
            self._disable("this system has no locks that end with their process")

    def acquire(self, key: bytes) -> bool:
        """Returns False if another store holds the claim; always True without locks."""
        if key in self.held:
            return True
        if self._file is not None:
            try:
                self._lock(key, fcntl.F_WRLCK)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    return False
                self._disable(error.strerror or str(error))
        self.held.add(key)
        return True

    def release(self, key: bytes) -> None:
        if key in self.held:
            self.held.discard(key)
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._lock(key, fcntl.F_UNLCK)

    def close(self) -> None:
        self.held.clear()
        if self._file is not None:
            self._file.close()

    def _lock(self, key: bytes, kind: int) -> None:
        assert self._file is not None
        offset = int.from_bytes(key[:8], "little") % _MAX_OFFSET  # keys are digests
        fcntl.fcntl(self._file.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))

    def _disable(self, why: str) -> None:
        self._file = None
        logger.warning("kv store: no claims (%s): processes may compute the same document at the same time", why)
