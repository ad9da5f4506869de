"""The generic level on AArch64, emulated by qemu, against this processor's, which other tests compare with float64."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from quire.kernels import build

pytestmark = pytest.mark.slow

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
#: Relative to the largest value. AArch64 fuses products with sums, which may round a weight's tie to the other side.
TOLERANCE = {"float32": 1e-6, "bfloat16": 2**-7}
SOURCES = Path(build.__file__).parent / "csrc"


def run_every_kernel(compiler: list[str], emulator: list[str], path: Path) -> list[tuple[str, np.ndarray]]:
    """Return the results by kernel/dtype."""
    flags = [flag for flag in build._FLAGS if flag not in ("-shared", "-fPIC")]
    files = [*sorted(SOURCES.glob("*.cpp")), Path(__file__).with_name("every_kernel.cpp")]
    subprocess.run([*compiler, *flags, "-static", "-w", f"-I{SOURCES}", *files, "-o", path], check=True)
    lines = subprocess.run([*emulator, path], check=True, capture_output=True, text=True).stdout.splitlines()
    return [(name, np.array(values, np.float64)) for name, *values in map(str.split, lines)]


def test_every_kernel_gives_the_same_results(tmp_path: Path) -> None:
    if missing := [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]:
        pytest.skip(f"there is no {' and no '.join(missing)} (Debian: g++-aarch64-linux-gnu, qemu-user)")
    here = run_every_kernel(build.find_compiler(), [], tmp_path / "here")
    there = run_every_kernel([COMPILER], [EMULATOR], tmp_path / "there")
    assert [name for name, _ in here] == [name for name, _ in there]
    assert len(here) > 120
    for (name, expected), (_, found) in zip(here, there, strict=True):
        is_finite = np.isfinite(expected)
        np.testing.assert_array_equal(found[~is_finite], expected[~is_finite], name)
        tolerance = TOLERANCE[name.rpartition("/")[2]] * np.abs(expected[is_finite]).max()
        np.testing.assert_allclose(found[is_finite], expected[is_finite], rtol=0, atol=tolerance, err_msg=name)


def test_other_architectures_have_the_generic_level_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(build.LEVELS)) == "generic"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    module: dict[str, object] = {"__name__": "build", "__file__": build.__file__}
    exec(Path(build.__file__).read_text(), module)
    assert module["LEVELS"] == {"generic": ()}
