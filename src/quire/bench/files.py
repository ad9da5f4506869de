"""Files for figures and pictures: no half of one stays, and a mistake shows before a long measurement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def writing(path: Path, mode: str = "w", *, keeps_half: bool = False) -> Iterator[Any]:
    """The file, open. Where writing fails, be it for a full disk or Ctrl-C, no half of it stays.

    Args:
        keeps_half: it does, since what came before the failure is worth having.

    Raises:
        ValueError: it cannot be written, a mistake of whoever named it.
    """
    is_open = False
    try:
        with path.open(mode) as file:
            is_open = True
            yield file
    except BaseException as error:
        if is_open and path.is_file() and not keeps_half:
            path.unlink()
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from None
        raise


def check_writable(path: Path) -> None:
    """Notice before a long measurement that its figures cannot be written. Nothing is changed.

    Raises:
        ValueError: why not.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return  # whoever reads a pipe would take our closing it for its end
    was_there = path.exists()
    try:
        path.open("a").close()
        if not was_there:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> ValueError:
    return ValueError(f"cannot write {path}: {error.strerror}; name a file where there is room and this user may write")


def write_json(data: dict[str, Any], path: Path) -> None:
    with writing(path) as file:
        file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
