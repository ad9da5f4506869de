"""Output files: written whole or not at all, and checked before a long measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def writing(path: Path, mode: str = "w") -> Iterator[Any]:
    """Open a file for writing, and remove it if writing fails. Raises ValueError if it cannot be written."""
    is_open = False
    try:
        with path.open(mode) as file:
            is_open = True
            yield file
    except BaseException as error:
        if is_open and path.is_file():
            path.unlink()
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from None
        raise


def check_writable(path: Path) -> None:
    """Raise ValueError if a file cannot be written, without changing it."""
    was_there = path.exists()
    if was_there and not (path.is_file() or path.is_dir()):
        return  # opening and closing a pipe would end it for its reader
    try:
        path.open("a").close()
        if not was_there:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ValueError:
    return ValueError(f"cannot write {path}: {error.strerror}; name a file where there is room and this user may write")


def write_json(data: Any, path: Path) -> None:
    with writing(path) as file:
        file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
