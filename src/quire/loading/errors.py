"""The one error of loading."""

from __future__ import annotations

from pathlib import Path


class ModelLoadError(ValueError):
    """A model that cannot be loaded; the message names the file or tensor, what is wrong and how to mend it."""


def unreadable(path: Path, error: OSError) -> ModelLoadError:
    """The error for a file or directory that the system does not let this process read."""
    return ModelLoadError(
        f"{path} cannot be read: {error.strerror or error}; let this user read it, and enter the folders it lies in"
    )
