"""Where links of a model's directory lead."""

from __future__ import annotations

import os
from pathlib import Path


def is_inside(directory: Path, file: Path) -> bool:
    """Whether a file, with its links resolved, is in a model's directory or among the blobs of the hub's cache."""
    home, target = Path(os.path.realpath(directory)), Path(os.path.realpath(file))
    blobs = [home.parent.parent / "blobs"] if home.parent.name == "snapshots" else []
    return any(target.is_relative_to(os.path.realpath(allowed)) for allowed in (home, *blobs))
