"""The user's cache directory, and atomic replacement of files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def user_cache() -> Path:
    """Return `$XDG_CACHE_HOME/quire` or ~/.cache/quire; without a home directory, an unusable path under /dev/null."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        try:
            cache = Path("~/.cache").expanduser()
        except RuntimeError:
            cache = Path(os.devnull)
    return cache / "quire"


def default_kv_dir() -> Path:
    """Return the directory in which servers keep prompts' KV unless they are given one."""
    return user_cache() / "kv"


def is_default_kv_dir(directory: str | None) -> bool:
    return directory == str(default_kv_dir())


def replace_file(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file atomically, replacing an earlier one. Creates its directory. Raises OSError."""
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
