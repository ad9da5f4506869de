"""The errors of loading."""

from __future__ import annotations

from pathlib import Path


class ModelLoadError(ValueError):
    """A model cannot be loaded. The message names the file or tensor, the cause and the remedy."""


class UnreadableError(ModelLoadError):
    """A file could not be read. The files may be intact, and a retry may succeed."""


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Make the error for a file or directory without read permission."""
    return UnreadableError(
        f"{path} cannot be read: {error.strerror or error}; give this user read access to it and its folders"
    )
