"""The kernels that a process uses, and its fallback without any."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import quire.kernels.build as kernels_build
import quire.kernels.loaded as loaded
from parameters import quick
from quire.kernels.build import LEVELS, BuildError, build, library_path
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.ops.backend import dtype_for


@pytest.fixture
def no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate an install without libraries and without a compiler on the PATH."""
    for module in (kernels_build, loaded):
        monkeypatch.setattr(module, "LIBRARIES", tmp_path / "lib")
        monkeypatch.setattr(module, "FAILURE", tmp_path / "lib" / "failure.txt")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("QUIRE_KERNELS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "lib"


def test_without_a_compiler_there_are_no_kernels_and_the_log_says_why(no_libraries: Path) -> None:
    with pytest.raises(BuildError, match="no C"):
        build()
    kernels = load_kernels()
    assert kernels.functions is None
    assert "there is no C++ compiler" in str(kernels)
    assert "torch computes instead. For kernels, install a C++ compiler and run `quire kernels build`" in str(kernels)


@pytest.mark.parametrize(
    ("dtype", "device", "variable", "expected"),
    [
        ("float32", "cpu", "", "there are no CPU kernels (not built: there is no C++ compiler (g++, c++, clang++)), "
         "and torch is not installed: install a C++ compiler and run `quire kernels build`, or "),
        ("float32", "cpu", "QUIRE_KERNELS=none", "there are no CPU kernels (QUIRE_KERNELS=none), and torch is not "
         "installed: unset QUIRE_KERNELS, or "),
        ("float16", "cpu", "", "the CPU kernels do not take dtype=float16, and torch is not installed: use float32 or "
         "bfloat16, or "),
        ("float32", "cuda", "", "device=cuda, and torch is not installed: use device=cpu, or "),
        ("float32", "cpu", "QUIRE_BACKEND=torch", "QUIRE_BACKEND=torch, and torch is not installed: unset "
         "QUIRE_BACKEND, or "),
    ],
)  # fmt: skip
def test_without_kernels_and_torch_one_sentence_says_how_to_go_on(
    no_libraries: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, device: str, variable: str, expected: str
) -> None:
    with pytest.raises(BuildError):
        build()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    if variable:
        monkeypatch.setenv(*variable.split("="))
    with pytest.raises(ValueError, match=re.escape(f"{expected}pip install 'quire-llm[torch]'")):
        dtype_for(dtype, device)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("", "(not built: {why}): install a C++ compiler and run `quire kernels build`"),
        ("QUIRE_KERNELS=none", "(QUIRE_KERNELS=none): unset QUIRE_KERNELS"),
    ],
)
def test_without_kernels_weights_are_not_quantized(
    no_libraries: Path, monkeypatch: pytest.MonkeyPatch, variable: str, expected: str, quantization: str
) -> None:
    with pytest.raises(BuildError) as failed:
        build()
    if variable:
        monkeypatch.setenv(*variable.split("="))
    message = f"quantization={quantization} needs CPU kernels {expected.format(why=failed.value)}"
    with pytest.raises(ValueError, match=re.escape(message)):
        load_model(resolve_model("random:tiny"), dtype="float32", quantization=quantization, use_tqdm=False)


def test_kernels_that_miss_libgomp_name_its_package(no_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(loaded, "runnable_levels", fail)
    assert load_kernels().fix == "install libgomp (Debian: libgomp1)"


def test_a_compiler_that_fails_is_no_reason_to_fail(no_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = no_libraries.parent / "broken"
    compiler.write_text("#!/bin/sh\necho 'unknown option' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError, match="unknown option"):
        build()
    assert "unknown option" in str(load_kernels())


@pytest.mark.parametrize("fails", [False, True])
def test_this_processors_best_level_is_compiled_alone_unless_that_fails(
    no_libraries: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    compiler = no_libraries.parent / "copies"
    best = list(LEVELS)[-1]
    refused = f"*{best}-*" if fails else "nothing"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncase "$last" in {refused}) exit 1;; esac\n: > "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(kernels_build.ctypes, "CDLL", lambda path: SimpleNamespace(quire_cpu_runs=lambda level: True))
    expected = [*LEVELS][:-1] if fails else ["generic", best]
    assert [path.name.rpartition("-")[0] for path in kernels_build.build_native()] == expected


def test_levels_that_a_compiler_does_not_know_are_left_out(no_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = no_libraries.parent / "old"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *-mamx*|*-mavx512bf16*) echo "unknown option" >&2; exit 1;; esac\n'
        'for last; do :; done\necho built > "$last"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    built = [path.name.rpartition("-")[0] for path in build()]
    assert built == [level for level in kernels_build.LEVELS if level not in ("avx512bf16", "amx")]
    if "amx" in kernels_build.LEVELS:
        assert "at level amx: unknown option" in kernels_build.FAILURE.read_text()


def test_libraries_of_other_sources_are_not_taken(no_libraries: Path) -> None:
    no_libraries.mkdir()
    (no_libraries / "generic-0123456789ab.so").write_bytes(b"")
    assert "quire kernels build" in str(load_kernels())


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    assert load_kernels().functions is None
    monkeypatch.setenv("QUIRE_KERNELS", "sse9")
    with pytest.raises(ValueError, match="none, generic"):
        load_kernels()


def test_a_level_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not loaded.runnable_levels():
        pytest.skip(f"kernels: {load_kernels()}")
    monkeypatch.setattr(loaded, "runnable_levels", lambda: ["generic"])
    monkeypatch.setenv("QUIRE_KERNELS", list(kernels_build.LEVELS)[-1])
    with pytest.raises(ValueError, match="runs generic only"):
        load_kernels()
    monkeypatch.delenv("QUIRE_KERNELS")
    assert load_kernels().level == "generic"


_PARALLEL = """
import os, sys
import numpy as np
from quire.kernels.conversion import conversions
from quire.kernels.loaded import describe_arithmetic

def convert():
    x = np.linspace(0, 1, 1 << 20, dtype=np.float32)
    out = np.empty(x.shape, np.float16)
    conversions().convert(x.ctypes.data, "float32", out.ctypes.data, "float16", x.size, 3)
    assert (out == x.astype(np.float16)).all()
    assert len(os.listdir("/proc/self/task")) >= 3
    print(describe_arithmetic("cpu"))

def use_torch():
    import torch
    torch.set_num_threads(3)
    assert torch.equal(torch.ones(1 << 22) + 1, torch.full((1 << 22,), 2.0))

for function in sys.argv[1:]:
    globals()[function]()
assert ("torch" in sys.modules) == ("use_torch" in sys.argv)
"""


@pytest.mark.parametrize(
    "order",
    [
        "convert",
        pytest.param("convert use_torch convert", marks=pytest.mark.slow),
        "use_torch convert use_torch",
    ],
)
def test_kernels_and_torch_share_a_process_in_any_order(order: str) -> None:
    if load_kernels().functions is None:
        pytest.skip(f"kernels: {load_kernels()}")
    done = subprocess.run([sys.executable, "-c", _PARALLEL, *order.split()], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == {loaded.describe_arithmetic("cpu")}
    assert "torch" not in done.stdout


def test_without_a_systems_libgomp_torch_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def load(path: str) -> str:
        if path.endswith("generic.so") and not found:
            raise OSError("libgomp.so.1: cannot open shared object file")
        found.append(Path(path).name)
        return path

    monkeypatch.setattr(loaded.ctypes, "CDLL", load)
    assert str(loaded._load.__wrapped__(Path("generic.so"))) == "generic.so"
    assert found[-1] == "generic.so"
    assert any(name.startswith("libgomp") for name in found[:-1])


_TILES = r"\t(tdp|tile|ldtilecfg)|ph\t"
_BEYOND = {
    "generic": r"\tv[a-z]|[yz]mm",  # SSE2, which every x86-64 processor has
    "avx2": r"zmm|\{%k|%[xy]mm(1[6-9]|2\d|3[01])",
    "avx512": rf"{_TILES}|\t(vdpbf16|vcvtne|vpdp|vperm(i2|t2)?b\b|vpcompress[bw]|vpopcnt)",
    "avx512bf16": _TILES,
}


@pytest.mark.parametrize("level", quick(["generic"], _BEYOND))
def test_a_level_holds_no_instruction_of_a_better_one(level: str) -> None:
    """An instruction that is not in a library cannot be executed."""
    if (objdump := shutil.which("objdump")) is None:
        pytest.skip("there is no objdump to read libraries with")
    if level not in LEVELS or not library_path(level).exists():
        pytest.skip(f"{level} is not of this architecture, or was not built")
    code = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", library_path(level)], capture_output=True, text=True, check=True
    ).stdout
    assert code.count("\n") > 1000
    assert not re.findall(f".*(?:{_BEYOND[level]}).*", code)[:3]


def test_a_wheel_of_kernels_that_were_compiled_before_is_bound_to_the_platform(
    no_libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interface: Any = ModuleType("interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.setattr(runpy, "run_path", lambda path: {**vars(kernels_build), "LIBRARIES": no_libraries})
    hook = _hatch_build()["KernelsHook"]()
    hook.target_name, hook.root = "wheel", "."
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    without: dict[str, Any] = {}
    hook.initialize("standard", without)
    assert not without, "what has no kernels runs anywhere"
    no_libraries.mkdir()
    (no_libraries / "generic-0123.so").touch()
    bound: dict[str, Any] = {}
    hook.initialize("standard", bound)
    assert bound["pure_python"] is False
    assert bound["tag"].startswith("py3-none-")


def _hatch_build() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "hatch_build.py"
    module: dict[str, Any] = {"__name__": "hatch_build", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), module)
    return module
