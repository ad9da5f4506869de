"""The errors of loading."""

from __future__ import annotations

import os
from pathlib import Path

from quire.system.paths import is_inside


class ModelLoadError(ValueError):
    """A model cannot be loaded. The message names the file or tensor, the cause and the remedy."""


class UnreadableError(ModelLoadError):
    """A file could not be read. The files may be intact, and a retry may succeed."""


def check_inside(directory: Path, file: Path) -> None:
    """Raise ModelLoadError for a file outside of the model's directory. Links into the hub's cache are followed."""
    if not is_inside(directory, file):
        raise ModelLoadError(
            f"{file} is {os.path.realpath(file)}, outside of the model's directory; copy the file into the directory"
        )


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Make the error for a file or directory without read permission."""
    return UnreadableError(
        f"{path} cannot be read: {error.strerror or error}; give this user read access to it and its folders"
    )
