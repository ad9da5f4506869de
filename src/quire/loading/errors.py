"""The errors of loading."""

from __future__ import annotations

from pathlib import Path


class ModelLoadError(ValueError):
    """A model that cannot be loaded; the message names the file or tensor, what is wrong and how to mend it."""


class UnreadableError(ModelLoadError):
    """The system did not give the bytes, which says nothing about what they are: it may give them later."""


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """The error for a file or directory that the system does not let this process read."""
    return UnreadableError(
        f"{path} cannot be read: {error.strerror or error}; let this user read it, and enter the folders it lies in"
    )
