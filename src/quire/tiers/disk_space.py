"""Swapped blocks in a file that belongs to this process alone and ends with it, however it ends.

Every block is a record (`block_record.py`), so that a block that the disk lost or altered is a failed read and never a
wrong byte. Nothing is synced: the file is of no use to anyone after this process.
"""

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
from quire.tiers.block_copy import runs
from quire.tiers.block_record import HEADER_BYTES, encode_header, is_intact

logger = logging.getLogger("quire")

_MAX_RECORDS = 512  # of one read or write: two buffers each, and systems take 1,024
_Buffer = memoryview | bytes | bytearray
_Move = Callable[[int, Sequence[_Buffer], int], int]  #: os.pwritev or os.preadv


class DiskSpace:
    """See `SwapSpace`. One thread at a time.

    The file grows as slots are used, up to `num_slots`. It is unlinked as soon as it is open; where a system does not
    allow that, it is locked, and removed at the end or by the next process that finds it unlocked.

    Args:
        directory: made if there is none.
        namespace: of the blocks, at most 32 bytes.
    """

    is_memory = False

    def __init__(self, directory: str | os.PathLike[str], num_slots: int, block_bytes: int, namespace: bytes) -> None:
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._record_bytes = HEADER_BYTES + block_bytes
        self._namespace = namespace
        self._errors: dict[_Move, int | None] = {}  #: the latest error of reading or writing, until it works again
        try:
            folder = Path(directory).expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(folder)
            self._check_room(folder)
            self._file, left = _open_private(folder)
            self._end = weakref.finalize(self, _discard, self._file, left)
            self._try_out()
        except (OSError, RuntimeError) as error:  # RuntimeError: a home directory that there is not
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"swap_dir={str(directory)!r} cannot be used: {reason}; name a directory on a disk "
                "where this user may write and there is room, or lower swap_space"
            ) from None

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        data = _rows(blocks)
        failed: list[int] = []
        for run in runs(slots):
            parts: list[_Buffer] = []
            for key, block in zip(keys[run], data[run], strict=True):
                parts += [encode_header(key, self._namespace, block), block]
            num_done = self._move(os.pwritev, slots[run.start], parts)
            failed.extend(range(run.start + num_done, run.stop))
        return failed

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        data = into if isinstance(into, Sequence) else _rows(into)
        failed: list[int] = []
        for run in runs(slots):
            headers = [bytearray(HEADER_BYTES) for _ in slots[run]]
            parts: list[_Buffer] = []
            for header, block in zip(headers, data[run], strict=True):
                parts += [header, block]
            num_done = self._move(os.preadv, slots[run.start], parts)
            for i, header in enumerate(headers):
                at = run.start + i
                if i >= num_done or not is_intact(header, keys[at], self._namespace, data[at]):
                    failed.append(at)
        return failed

    def close(self) -> None:
        self._end()
        self._file = -1  # no number of another file that is opened later

    def _move(self, move: _Move, slot: int, parts: list[_Buffer]) -> int:
        """Write or read neighbouring records. Returns how many went through whole; the later ones did not."""
        num_records = len(parts) // 2
        num_done = 0
        while num_done < num_records:
            some = parts[2 * num_done : 2 * (num_done + _MAX_RECORDS)]
            try:
                num_bytes = move(self._file, some, (slot + num_done) * self._record_bytes)
            except OSError as error:
                self._tell(move, error)
                break
            if num_bytes < self._record_bytes:  # the disk is full, or the file was cut
                break
            num_done += num_bytes // self._record_bytes
        else:
            self._errors.pop(move, None)
        return num_done

    def _tell(self, move: _Move, error: OSError) -> None:
        """Log an error once, until the failed operation has worked again."""
        if self._errors.get(move) != error.errno:
            self._errors[move] = error.errno
            logger.warning(
                "swap: %s failed: %s", "writing" if move is os.pwritev else "reading", error.strerror or error
            )

    def _check_room(self, folder: Path) -> None:
        disk = os.statvfs(folder)
        needed, free = self.num_slots * self._record_bytes, disk.f_bavail * disk.f_frsize
        if disk.f_blocks and needed > free:  # some systems count nothing
            raise ValueError(
                f"swap_dir={str(folder)!r} has {format_size(free)} free, and swapping may take {format_size(needed)}; "
                "lower swap_space or name another directory"
            )

    def _try_out(self) -> None:
        """One record to the last slot and back, so that a bad disk is known before it is needed."""
        at, record = (self.num_slots - 1) * self._record_bytes, os.urandom(self._record_bytes)
        if os.pwrite(self._file, record, at) < len(record) or os.pread(self._file, len(record), at) != record:
            raise OSError("a record that is written there cannot be read again")


def _rows(blocks: torch.Tensor) -> list[memoryview]:
    """The bytes of each block."""
    return [row.data for row in blocks.numpy()]


def _open_private(folder: Path) -> tuple[int, Path | None]:
    """A new file that nobody else finds, and its path where it had to be left there."""
    path = folder / f"quire-swap-{os.getpid()}-{secrets.token_hex(4)}.kv"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    _lock(file)
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return file, path
    return file, None


def _remove_leftovers(folder: Path) -> None:
    """Remove files of processes that ended between opening and unlinking, or could not unlink."""
    for path in folder.glob("quire-swap-*.kv"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _lock(file):
                    path.unlink()
            finally:
                os.close(file)


def _lock(file: int) -> bool:
    """Lock a file for as long as it is open. False where another process has it, or nobody can."""
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
