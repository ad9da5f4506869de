"""Private files, and locks that end with their process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from quire.tiers.store.layout.record import Buffer

_LOCK_PATIENCE_S = 5.0  #: work under a lock takes milliseconds
_AHEAD_BYTES = 128 << 10  # Linux may read no more for one call
_MAX_RECORDS = 512  # per call: two buffers each, and systems take 1,024

Move = Callable[[int, Sequence[Buffer], int], int]  #: os.pwritev or os.preadv


class OpenFile:
    """A file that closes with its last reference, so that a cache may drop it during a read."""

    __slots__ = ("fd",)

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if flags & os.O_CREAT:
            os.fchmod(self.fd, 0o600)  # whatever the umask

    def __del__(self) -> None:
        with contextlib.suppress(OSError):  # of a lost file server
            self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def is_at(self, path: Path) -> bool:
        """Whether the path still names this file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self.fd), os.stat(path))
        return False

    def lock(self, *, shared: bool = False) -> bool | None:
        """Lock the file while it is open. Returns False if another holds the lock, None without locks."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
        return True

    def read_ahead(self, at: int, num_bytes: int) -> None:
        """Have the system read bytes into its cache, meanwhile, where it can."""
        with contextlib.suppress(AttributeError, OSError):
            for start in range(at, at + num_bytes, _AHEAD_BYTES):
                os.posix_fadvise(self.fd, start, min(_AHEAD_BYTES, at + num_bytes - start), os.POSIX_FADV_WILLNEED)

    def unlink_from(self, path: Path) -> None:
        """Unlink and truncate the file, since others may keep it open for long. Their reads come short."""
        path.unlink()
        os.ftruncate(self.fd, 0)

    def wait_for_lock(self) -> None:
        """Wait for the lock, if the system has locks. Raises OSError after a timeout: its holder may be stopped."""
        until = time.monotonic() + _LOCK_PATIENCE_S
        while self.lock() is False:
            if time.monotonic() > until:
                raise OSError(errno.EAGAIN, "another process holds a lock for too long")
            time.sleep(1e-3)


@contextlib.contextmanager
def locked(path: Path, flags: int = 0) -> Iterator[OpenFile]:
    """Open a file, and hold its lock."""
    file = OpenFile(path, os.O_RDWR | os.O_CREAT | flags)
    try:
        file.wait_for_lock()
        yield file
    finally:
        file.close()


def make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    path.chmod(0o700)  # whatever the umask


def check_directory(path: Path) -> None:
    """Refuse directories that others own or can write to, with a ValueError."""
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{str(path)!r} is not a directory; name one")
    if found.st_uid != os.geteuid():
        raise ValueError(
            f"{str(path)!r} belongs to user {found.st_uid}, and this process is user {os.geteuid()}; "
            "name a directory of your own"
        )
    if found.st_mode & 0o022:
        raise ValueError(f"others may write to {str(path)!r}; run `chmod go-w {path}` or name another directory")


def write_whole(path: Path, *parts: bytes | bytearray) -> None:
    """Write or replace a file atomically."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        file = OpenFile(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            append(file, 0, b"".join(parts))
        finally:
            file.close()
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def append(file: OpenFile, at: int, data: bytes) -> None:
    """Write all bytes at an offset, or raise OSError."""
    if os.pwrite(file.fd, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def move_records(move: Move, file: OpenFile, parts: Sequence[Buffer], at: int) -> tuple[int, OSError | None]:
    """Write or read neighbouring records, two buffers each. Returns how many are complete, and the error after them."""
    num_done = 0
    while 2 * num_done < len(parts):
        some = parts[2 * num_done : 2 * (num_done + _MAX_RECORDS)]
        try:
            num_bytes = move(file.fd, some, at)
        except OSError as error:
            return num_done, error
        num_whole = count_whole(some, num_bytes)
        if not num_whole:  # the disk is full, or the file was truncated
            break
        num_done += num_whole
        at += sum(len(part) for part in some[: 2 * num_whole])
    return num_done, None


def count_whole(parts: Sequence[Buffer], num_bytes: int) -> int:
    """How many records, two buffers each, `num_bytes` fill."""
    ends = accumulate(len(header) + len(data) for header, data in zip(parts[::2], parts[1::2], strict=True))
    return sum(end <= num_bytes for end in ends)


def remove_unlocked(folder: Path, pattern: str) -> None:
    """Remove the files of ended processes."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if OpenFile(path, os.O_RDWR).lock():
                path.unlink()
