"""Load the compiled kernels: the processor's best level, or that of QUIRE_KERNELS. They need libgomp: the wheel's copy;
otherwise the system's or torch's, which torch then shares."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from quire.kernels.build import FAILURE, LEVELS, LIBRARIES, library_path

#: Dtypes that kernels compute in.
DTYPES = ("float32", "bfloat16")

_VARIABLE = "QUIRE_KERNELS"
_BUILD = "run `quire kernels build`"


@dataclass(frozen=True)
class Kernels:
    """The kernels of this process: level (none with torch), library, why there is none, and the fix."""

    level: str
    functions: ctypes.CDLL | None = None
    reason: str = ""
    fix: str = ""

    def __str__(self) -> str:
        if self.functions is not None:
            return self.level
        without = "torch computes instead" if find_spec("torch") else "torch is not installed either"
        return f"none, {self.reason}; {without}. For kernels, {self.fix}"


def load_kernels() -> Kernels:
    """Load the kernels; QUIRE_KERNELS=none disables them, else it names a level. ValueError if it is not supported."""
    wanted = os.environ.get(_VARIABLE, "").strip().lower()
    if wanted == "none":
        return Kernels("none", reason=f"{_VARIABLE}=none", fix=f"unset {_VARIABLE}")
    try:
        levels = runnable_levels()
    except OSError as error:
        fix = "install libgomp (Debian: libgomp1)" if "libgomp" in str(error) else f"{_BUILD} --again"
        return Kernels("none", reason=f"they cannot be loaded ({error})", fix=fix)
    if wanted and wanted not in LEVELS:
        raise ValueError(f"{_VARIABLE}={wanted!r} is not one of none, {', '.join(LEVELS)}")
    if not levels:
        return _unbuilt()
    if wanted and wanted not in levels:
        raise ValueError(f"{_VARIABLE}={wanted}: this processor runs {', '.join(levels)} only")
    level = wanted or levels[-1]
    return Kernels(level, load_library(level))


def runnable_levels() -> list[str]:
    """Return the built levels that this processor supports, the best one last. Raises OSError."""
    if not library_path("generic").exists():
        return []
    runs = load_library("generic").quire_cpu_runs
    return [level for level in LEVELS if library_path(level).exists() and runs(level.encode())]


def load_library(level: str) -> ctypes.CDLL:
    """Load the library of a supported level. Raises OSError if it is missing or damaged."""
    return _load(library_path(level))


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if "libgomp" not in str(error) or (torch := find_spec("torch")) is None:
            raise
        for copy in Path(*torch.submodule_search_locations or (), "lib").glob("libgomp*"):
            ctypes.CDLL(str(copy))
        return ctypes.CDLL(str(path))


def describe_arithmetic(device: str) -> str:
    """Name what computes on a device: machines of equal names get equal bits from equal weights and tokens."""
    level = load_kernels().level
    if device == "cpu" and level != "none":
        return f"{level} {_digest(library_path(level))}"
    import torch

    build = f"none {torch.backends.cpu.get_cpu_capability()}" if device == "cpu" else torch.cuda.get_device_name()
    triton = f", {describe_triton()}" if uses_triton(device) else ""
    return f"{build}, torch {torch.__version__}{triton}"


def uses_triton(device: str) -> bool:
    """Whether our Triton kernels compute on a device: on a GPU with Triton, unless QUIRE_KERNELS=none."""
    is_wanted = os.environ.get(_VARIABLE, "").strip().lower() != "none"
    return device == "cuda" and is_wanted and find_spec("triton") is not None


def describe_triton() -> str:
    """Name Triton's version and our kernels."""
    import triton

    sources = sorted((Path(__file__).parent / "triton").glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return f"triton {triton.__version__} {digest[:12]}"


def has_exact_kernels(device: str, dtype: str) -> bool:
    """Whether a token's bits depend only on the model and the tokens before it. Sums of torch and of GPUs depend on the
    number of rows."""
    return device == "cpu" and dtype in DTYPES and load_kernels().level != "none"


@functools.cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unbuilt() -> Kernels:
    reason, fix = "not built", f"install a C++ compiler and {_BUILD}"
    if LIBRARIES.is_dir() and any(LIBRARIES.glob("*.so")):
        reason, fix = "their sources changed since they were built", _BUILD
    with suppress(OSError):
        reason = f"not built: {FAILURE.read_text().strip()}"
    return Kernels("none", reason=reason, fix=fix)
