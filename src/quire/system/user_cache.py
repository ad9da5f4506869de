"""Where this user's caches are, and how a file there is replaced: whole, so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/quire`, or ~/.cache/quire where that is not set or not absolute.

    For a user without a home, such as a container's, a place where nothing is found and nothing can be kept.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        try:
            cache = Path("~/.cache").expanduser()
        except RuntimeError:
            cache = Path(os.devnull)
    return cache / "quire"


def replace_file(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file, in the place of an earlier one; its directory is made if there is none.

    Raises:
        OSError: the disk is full, or the directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
