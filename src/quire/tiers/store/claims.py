"""Claims: the right of one process to compute the blocks up to a key, so that each document is computed once. The
holder locks one byte of a file (Linux's open file description locks); without locks every process computes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from quire.tiers.store.catalog import Catalog
from quire.tiers.store.layout.files import OpenFile

logger = logging.getLogger("quire")

NAME = "claims"
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid: struct flock of 64-bit Linux
_MAX_OFFSET = 2**62
CLAIM_EVERY_S = 0.02  #: period of `serve` while claims are pending


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


class ClaimQueue:
    """Pending and granted claims. Thread-safe, by the catalog's lock. Grants every claim if read-only."""

    def __init__(self, path: Path, catalog: Catalog, is_read_only: bool) -> None:
        self.has_answers = False
        self._catalog = catalog
        self._is_read_only = is_read_only
        self._claims = Claims(path, is_read_only)
        self._pending: dict[bytes, float] = {}  #: key -> time at which waiting ends
        self._granted: list[bytes] = []
        self._expired: list[bytes] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def ask(self, key: bytes, patience_s: float) -> None:
        """Queue a claim, unless its key is stored; then the key is reported as added once more."""
        with self._catalog.lock:
            if self._catalog.report_again(key):
                return
            if self._is_read_only:
                self._answer(self._granted, key)
            else:
                self._pending[key] = time.monotonic() + patience_s

    def drop(self, key: bytes) -> None:
        """Drop a granted or pending claim; harmless without one."""
        with self._catalog.lock:
            self._pending.pop(key, None)
            self._claims.release(key)
            self._granted = [each for each in self._granted if each != key]

    def end_stored(self, keys: Iterable[bytes]) -> None:
        with self._catalog.lock:
            for key in keys:
                if key in self._catalog:
                    self._claims.release(key)

    def pop_answers(self) -> tuple[list[bytes], list[bytes]]:
        """Return the keys of granted and of expired claims since the last call."""
        answers = self._granted, self._expired
        self._granted, self._expired, self.has_answers = [], [], False
        return answers

    def serve(self) -> None:
        """Answer the pending claims that can be granted, are stored, or have waited too long."""
        now = time.monotonic()
        acquired: list[bytes] = []
        with self._catalog.lock:
            for key, until in list(self._pending.items()):
                if key in self._catalog:
                    del self._pending[key]
                elif self._claims.acquire(key):
                    acquired.append(key)
                elif now >= until:
                    del self._pending[key]
                    self._answer(self._expired, key)
        if acquired:
            self._catalog.refresh()  # the previous holder may have written the key before it released the claim
        with self._catalog.lock:
            for key in acquired:
                if self._pending.pop(key, None) is None or self._catalog.report_again(key):
                    self._claims.release(key)
                else:
                    self._answer(self._granted, key)

    def close(self) -> None:
        self._claims.close()

    def _answer(self, answers: list[bytes], key: bytes) -> None:
        answers.append(key)
        self.has_answers = True
