"""Parameters for tests of kernels: each level that this processor runs."""

from __future__ import annotations

import ctypes

import pytest

from quire.kernels.build import LEVELS
from quire.kernels.loaded import load_kernels, load_library, runnable_levels


def library_of(level: str) -> ctypes.CDLL:
    """Load a level's library; skip the test if it cannot run here."""
    if level not in (levels := runnable_levels()):
        pytest.skip(f"this processor runs {', '.join(levels)}" if levels else f"kernels: {load_kernels()}")
    return load_library(level)


each_level = pytest.mark.parametrize("level", LEVELS)
