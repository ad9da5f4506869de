"""Libraries of kernels for tests: this processor's levels, and AMX with emulated tiles."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

import quire.kernels.build as kernels_build
import quire.kernels.loaded as loaded
from quire.kernels.loaded import load_kernels, load_library, runnable_levels

EMULATED = "amx-emulated"
#: For `parametrize`; the emulated level takes ten seconds to compile.
LEVELS = [*kernels_build.LEVELS, pytest.param(EMULATED, marks=pytest.mark.slow)]
needs_kernels = pytest.mark.skipif(load_kernels().functions is None, reason="needs kernels")
each_level = pytest.mark.parametrize("level", kernels_build.LEVELS)
_HEADER = Path(__file__).parent / "kernels" / "emulated_tiles.h"


def library_of(level: str) -> ctypes.CDLL:
    """Load a level's kernels, or skip the test."""
    if level == EMULATED:
        return ctypes.CDLL(str(emulated_library()))
    if level not in (levels := runnable_levels()):
        pytest.skip(f"this processor runs {', '.join(levels)}" if levels else f"kernels: {load_kernels()}")
    return load_library(level)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="quire-amx-")


@functools.cache
def emulated_library() -> Path:
    """Compile level amx for processors that have all of it but AMX, or skip the test."""
    if "avx512bf16" not in runnable_levels():
        pytest.skip("emulated tiles need products of bfloat16")
    path = Path(_folder().name) / "amx.so"
    flags = [*kernels_build._FLAGS, *kernels_build.LEVELS["avx512bf16"], "-include", str(_HEADER)]
    sources = [str(each) for each in (kernels_build.HERE / "csrc").glob("*.cpp") if each.name != "cpu.cpp"]
    subprocess.run([*kernels_build.find_compiler(), *flags, *sources, "-o", str(path)], check=True)
    return path


def use_emulated_amx() -> None:
    """Make this process's level amx the emulated one."""
    path, levels, library_path = emulated_library(), runnable_levels(), loaded.library_path
    loaded.runnable_levels = lambda: [*levels, "amx"]
    loaded.library_path = lambda level: path if level == "amx" else library_path(level)
