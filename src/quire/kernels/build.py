"""Compile the kernels, for `quire kernels build` and `hatch_build.py`.

Each level of processor features has its own shared library, so that no unsupported code is loaded. A library's name
contains a digest of its sources. This file imports only the standard library, since the install runs it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
LIBRARIES = HERE / "lib"
#: The last build's error, for the engine's log.
FAILURE = LIBRARIES / "failure.txt"

_COMPILERS = ("g++", "c++", "clang++")
# Fused multiply-add is allowed; options that change NaN, infinity or the FPU's mode are not.
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp", "-fvisibility=hidden", "-fno-math-errno",
          "-ffp-contract=fast")  # fmt: skip
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")
_BF16 = (*_AVX512, "-mavx512bf16", "-mavx512vnni")
_X86_LEVELS = {
    "avx2": _AVX2,
    "avx512": _AVX512,
    # bfloat16 and 8-bit dot products: Zen 4 and later, Xeons from Sapphire Rapids on.
    "avx512bf16": _BF16,
    # Products of tiles: Xeons from Sapphire Rapids on.
    "amx": (*_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
}
#: Compiler flags by level, the best level last.
LEVELS: dict[str, tuple[str, ...]] = {
    "generic": (),
    **(_X86_LEVELS if platform.machine().lower() in ("x86_64", "amd64") else {}),
}


class BuildError(RuntimeError):
    """There is no compiler, or compilation failed."""


def library_path(level: str) -> Path:
    """Return the path of a level's library for the current sources."""
    return LIBRARIES / f"{level}-{_digest_of_sources()}.so"


@functools.cache
def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted((HERE / "csrc").iterdir())):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def find_compiler() -> list[str]:
    """Find $CXX, which may have arguments, or a compiler with a usual name. BuildError if there is none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in _COMPILERS]:
        if path := shutil.which(command[0]):
            return [path, *command[1:]]
    raise BuildError(f"there is no C++ compiler ({named[0] if named else ', '.join(_COMPILERS)})")


def build_native() -> list[Path]:
    """Compile only what this processor needs: generic, which detects it, and its best level. As `build` otherwise."""
    build(levels=("generic",))
    runs = ctypes.CDLL(str(library_path("generic"))).quire_cpu_runs
    best = [level for level in LEVELS if runs(level.encode())][-1]
    built = build(levels=("generic", best))
    return built if library_path(best) in built else build()  # an old compiler


def build(*, again: bool = False, levels: Collection[str] = LEVELS) -> list[Path]:
    """Compile missing libraries of these levels, or with `again` all, remove those of other sources, and return all.
    Errors are kept in `FAILURE`. BuildError if none was built."""
    paths = {level: library_path(level) for level in LEVELS}
    failures: list[str] = []
    try:
        missing = [level for level in levels if again or not paths[level].exists()]
        if missing:
            compiler = find_compiler()
            LIBRARIES.mkdir(exist_ok=True)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                failures = [*filter(None, pool.map(lambda level: _compile(compiler, level, paths[level]), missing))]
    except (BuildError, OSError) as error:
        _keep(str(error))
        raise BuildError(str(error)) from None
    if failures:
        _keep("; ".join(failures))
    else:
        FAILURE.unlink(missing_ok=True)
    is_usable = paths["generic"].exists()  # it detects the processor
    for stale in {*LIBRARIES.glob("*.so")} - ({*paths.values()} if is_usable else set()):
        stale.unlink(missing_ok=True)
    if not is_usable:
        raise BuildError(failures[0])
    return [path for path in paths.values() if path.exists()]


def _compile(compiler: list[str], level: str, path: Path) -> str | None:
    """Compile a library. Returns the compiler's error."""
    # The code that detects the processor must run on any.
    sources = [
        str(each) for each in sorted((HERE / "csrc").glob("*.cpp")) if each.name != "cpu.cpp" or level == "generic"
    ]
    made = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *_FLAGS, *LEVELS[level], *sources, "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        made.unlink(missing_ok=True)
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return f"{compiler[0]} failed at level {level}: {lines[0]}"
    made.replace(path)
    return None


def _keep(reason: str) -> None:
    try:
        LIBRARIES.mkdir(exist_ok=True)
        FAILURE.write_text(reason + "\n")
    except OSError:  # not writable, so there are no libraries either
        pass


if __name__ == "__main__":
    try:
        for each in build_native() if "--native" in sys.argv else build():
            print(each)
    except (BuildError, OSError) as error:
        sys.exit(f"no kernels were built: {error}")
