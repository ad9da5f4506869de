"""Files that belong to their user alone, and locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_LOCK_PATIENCE_S = 5.0  #: what is done under a lock takes milliseconds


class OpenFile:
    """A file that closes when nobody refers to it any more, so that it can be dropped under a reader."""

    __slots__ = ("fd",)

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if flags & os.O_CREAT:
            os.fchmod(self.fd, 0o600)  # whatever the umask

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def is_at(self, path: Path) -> bool:
        """Whether the path still leads to this file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self.fd), os.stat(path))
        return False

    def lock(self, *, shared: bool = False) -> bool | None:
        """Lock the file for as long as it is open. False where another has it, None where the system has no locks."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
        return True

    def unlink_from(self, path: Path) -> None:
        """Unlink the file, and give its room back at once: others may have it open for long. Their reads come short."""
        path.unlink()
        os.ftruncate(self.fd, 0)

    def wait_for_lock(self) -> None:
        """Lock the file, where the system has locks, when whoever has it is done.

        Raises:
            OSError: that took too long. A process that was stopped must not stop all others.
        """
        until = time.monotonic() + _LOCK_PATIENCE_S
        while self.lock() is False:
            if time.monotonic() > until:
                raise OSError(errno.EAGAIN, "another process holds a lock and does not go on")
            time.sleep(1e-3)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock.

    Raises:
        OSError: see `OpenFile.wait_for_lock`.
    """
    file = OpenFile(path, os.O_RDWR | os.O_CREAT)
    try:
        file.wait_for_lock()
        yield
    finally:
        file.close()


def make_directory(path: Path) -> None:
    """For this user alone, if there is none."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    path.chmod(0o700)  # whatever the umask


def check_directory(path: Path) -> None:
    """Refuse what others could write to.

    Raises:
        ValueError: saying how to mend it.
    """
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
    """Put a file in its place in one piece, over whatever is there."""
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
    """All of it, or OSError."""
    if os.pwrite(file.fd, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
