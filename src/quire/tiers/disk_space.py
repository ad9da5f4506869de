"""Swapped blocks in a file of this process: records as in the block store, never synced."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from quire.config import format_size
from quire.tiers.store.layout.record import HEADER_BYTES, KEY_BYTES, Buffer, Row, encode_header, is_intact
from quire.tiers.swap_space import runs

logger = logging.getLogger("quire")

_MAX_RECORDS = 512  # per read or write: two buffers each, and systems take 1,024
_NO_PARENT = bytes(KEY_BYTES)
_Move = Callable[[int, Sequence[Buffer], int], int]  #: os.pwritev or os.preadv


class DiskSpace:
    """A `SwapSpace` in a file that grows up to `num_slots`. One thread at a time.

    The file is unlinked right after it is opened. Systems that do not allow that lock it, and remove it at the end or
    from the next process that finds it unlocked. `namespace` is the root key of the blocks.
    """

    is_memory = False

    def __init__(self, directory: str | os.PathLike[str], num_slots: int, block_bytes: int, namespace: bytes) -> None:
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._record_bytes = HEADER_BYTES + block_bytes
        self._namespace = namespace
        self._errors: dict[_Move, int | None] = {}  #: error number of the last read or write, until one succeeds
        try:
            folder = Path(directory).expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(folder)
            self._check_room(folder)
            self._file, left = _open_private(folder)
            self._end = weakref.finalize(self, _discard, self._file, left)
            self._check_last_slot()
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"swap_dir={str(directory)!r} cannot be used: {reason}; name a directory on a disk "
                "where this user may write and there is room, or lower swap_space"
            ) from None

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        data = _rows(blocks)
        failed: list[int] = []
        for run in runs(slots):
            parts: list[Buffer] = []
            for key, block in zip(keys[run], data[run], strict=True):
                parts += [encode_header(self._namespace, Row(key, _NO_PARENT, 0.0, 0), block), block]
            num_done = self._move(os.pwritev, slots[run.start], parts)
            failed.extend(range(run.start + num_done, run.stop))
        return failed

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        data = into if isinstance(into, Sequence) else _rows(into)
        failed: list[int] = []
        for run in runs(slots):
            headers = [bytearray(HEADER_BYTES) for _ in slots[run]]
            parts: list[Buffer] = []
            for header, block in zip(headers, data[run], strict=True):
                parts += [header, block]
            num_done = self._move(os.preadv, slots[run.start], parts)
            for i, header in enumerate(headers):
                at = run.start + i
                if i >= num_done or not is_intact(self._namespace, keys[at], header, data[at]):
                    failed.append(at)
        return failed

    def close(self) -> None:
        self._end()
        self._file = -1  # never the descriptor of a file that is opened later

    def _move(self, move: _Move, slot: int, parts: list[Buffer]) -> int:
        """Move neighbouring records. Returns how many are complete; the later ones failed."""
        num_records = len(parts) // 2
        num_done = 0
        while num_done < num_records:
            some = parts[2 * num_done : 2 * (num_done + _MAX_RECORDS)]
            try:
                num_bytes = move(self._file, some, (slot + num_done) * self._record_bytes)
            except OSError as error:
                self._log_error(move, error)
                break
            if num_bytes < self._record_bytes:  # the disk is full, or the file was truncated
                break
            num_done += num_bytes // self._record_bytes
        else:
            self._errors.pop(move, None)
        return num_done

    def _log_error(self, move: _Move, error: OSError) -> None:
        """Log an error once, until the failed operation succeeds."""
        if self._errors.get(move) != error.errno:
            self._errors[move] = error.errno
            logger.warning(
                "swap: %s failed: %s", "writing" if move is os.pwritev else "reading", error.strerror or error
            )

    def _check_room(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        needed, free = self.num_slots * self._record_bytes, disk.f_bavail * disk.f_frsize
        if disk.f_blocks and needed > free:  # some systems report no sizes
            raise ValueError(
                f"swap_dir={str(folder)!r} has {format_size(free)} free, and swapping may take {format_size(needed)}; "
                "lower swap_space or name another directory"
            )

    def _check_last_slot(self) -> None:
        """Write and read the last slot, so that a bad disk fails at the start."""
        at, record = (self.num_slots - 1) * self._record_bytes, os.urandom(self._record_bytes)
        if os.pwrite(self._file, record, at) < len(record) or os.pread(self._file, len(record), at) != record:
            raise OSError("a record that is written there cannot be read again")


def _rows(blocks: torch.Tensor) -> list[memoryview]:
    return [row.data for row in blocks.numpy()]


def _open_private(folder: Path) -> tuple[int, Path | None]:
    """Open a new file. Returns its path too if it could not be unlinked."""
    path = folder / f"quire-swap-{os.getpid()}-{secrets.token_hex(4)}.kv"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    _lock(file)
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return file, path
    return file, None


def _remove_leftovers(folder: Path) -> None:
    """Remove files of ended processes that could not unlink them."""
    for path in folder.glob("quire-swap-*.kv"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _lock(file):
                    path.unlink()
            finally:
                os.close(file)


def _lock(file: int) -> bool:
    """Lock an open file. Returns False if another process holds the lock, or the system has none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _discard(file: int, path: Path | None) -> None:
    os.close(file)
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()
