"""Swapped blocks in a file of this process: records as in the block store, never synced."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quire.config import format_size
from quire.tiers.store.layout.cipher import Cipher
from quire.tiers.store.layout.files import Move, OpenFile, move_records, remove_unlocked
from quire.tiers.store.layout.record import HEADER_BYTES, KEY_BYTES, Buffer, Row, encode_record, read_block
from quire.tiers.swap_space import runs

logger = logging.getLogger("quire")

_NO_PARENT = bytes(KEY_BYTES)


class DiskSpace:
    """A `SwapSpace` in an unlinked or locked file that grows up to `num_slots`. One thread at a time. `namespace` is
    the root key of the blocks; `cipher` encrypts them."""

    is_memory = False

    def __init__(
        self, directory: str | Path, num_slots: int, block_bytes: int, namespace: bytes, cipher: Cipher | None = None
    ) -> None:
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self._record_bytes = HEADER_BYTES + block_bytes
        self._namespace = namespace
        self._cipher = cipher
        self._errors: dict[Move, int | None] = {}  #: logged error number of the last read or write, until one succeeds
        try:
            folder = Path(directory).expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            remove_unlocked(folder, "quire-swap-*.kv")
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

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        data = _rows(blocks)
        failed: list[int] = []
        for run in runs(slots):
            parts: list[Buffer] = []
            for key, block in zip(keys[run], data[run], strict=True):
                parts += encode_record(self._namespace, Row(key, _NO_PARENT, 0.0, 0), block, self._cipher)
            num_done = self._move(os.pwritev, slots[run.start], parts)
            failed.extend(range(run.start + num_done, run.stop))
        return failed

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray | Sequence[memoryview]) -> list[int]:
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
                block = data[at]
                if i >= num_done or not read_block(self._namespace, keys[at], header, block, block, self._cipher):
                    failed.append(at)
        return failed

    def close(self) -> None:
        self._end()

    def _move(self, move: Move, slot: int, parts: list[Buffer]) -> int:
        """Move neighbouring records. Returns how many are complete; the later ones failed."""
        num_done, error = move_records(move, self._file, parts, slot * self._record_bytes)
        if error is not None and self._errors.get(move) != error.errno:
            self._errors[move] = error.errno
            what = "writing" if move is os.pwritev else "reading"
            logger.warning("swap: %s failed: %s", what, error.strerror or error)
        elif error is None and 2 * num_done == len(parts):
            self._errors.pop(move, None)
        return num_done

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
        if os.pwrite(self._file.fd, record, at) < len(record) or os.pread(self._file.fd, len(record), at) != record:
            raise OSError("a record that is written there cannot be read again")


def _rows(blocks: np.ndarray) -> list[memoryview]:
    return [row.data for row in blocks]


def _open_private(folder: Path) -> tuple[OpenFile, Path | None]:
    """Open a new file. Returns its path too if it could not be unlinked."""
    path = folder / f"quire-swap-{os.getpid()}-{secrets.token_hex(4)}.kv"
    file = OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    file.lock()
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return file, path
    return file, None


def _discard(file: OpenFile, path: Path | None) -> None:
    file.close()
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()
