"""Drop root's permission to read and write everything, since containers and CI often run tests as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_UNPRIVILEGED_UID = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run all threads as an unprivileged user within the block, if the user is root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that every user may enter, unlike `tmp_path`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
