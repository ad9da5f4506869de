"""`python -m build` makes an sdist and a wheel; the wheel serves in a fresh environment, which has no torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with an sdist, and with a wheel that was built from this sdist."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    subprocess.run(command, check=True)
    (built,) = directory.glob("*.whl")
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(directory)]
    tools = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([*command, str(built)], check=True, env=os.environ | {"PATH": tools})
    built.unlink()
    return directory


@pytest.fixture(scope="module")
def environment(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh environment with the wheel and this interpreter's packages, without torch."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    (wheel,) = distributions.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    # Folders in a .pth file are importable, but their own .pth files (the editable install) are not read.
    dependencies = directory / "dependencies"
    dependencies.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(("torch", "quire")):
            (dependencies / each.name).symlink_to(each)
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return directory


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def url(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [environment / "bin" / "quire", "serve", "--port", "0", "--kv-cache-memory", "64MiB"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        cwd=tmp_path_factory.mktemp("cwd"),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://\S+:\d+", line):
            yield match[0]
            break
    else:
        pytest.fail(f"quire serve ended with status {process.wait()}")
    process.terminate()
    process.wait(timeout=60)


def test_the_wheel_holds_the_package_and_nothing_else(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"quire", "quire_llm.libs"}
    assert any(name.endswith("embedded/quire-mini/model.safetensors") for name in names)
    assert any(name.endswith("csrc/collective.cpp") for name in names)
    assert {"quire/py.typed", "quire/server/page/index.html", "quire/server/page/main.js"} <= set(names)
    assert any(name.startswith("quire_llm.libs/libgomp") for name in names)
    assert re.fullmatch(r"quire_llm-.*-py3-none-manylinux_\d+_\d+_\w+\.whl", wheel.name), "PyPI refuses linux_x86_64"


def test_the_sdist_holds_what_a_build_and_a_test_run_need(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {"/".join(name.split("/")[1:]) for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"} <= names
    assert {"tests/conftest.py", "src/quire/__init__.py", "docs/architecture.md"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_installed_package_is_the_wheels(environment: Path) -> None:
    code = "import quire; print(quire.__file__)"
    command = [environment / "bin" / "python", "-c", code]
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, env=clean_environment(), cwd=environment
    ).stdout
    assert found.startswith(str(environment))


BOTH = """
import sys
import numpy as np
from quire.kernels.conversion import conversions
from quire.kernels.loaded import load_kernels

def convert():
    x = np.linspace(0, 1, 1 << 20, dtype=np.float32)
    out = np.empty(x.shape, np.float16)
    conversions().convert(x.ctypes.data, "float32", out.ctypes.data, "float16", x.size, 3)
    assert (out == x.astype(np.float16)).all()

def use_torch():
    sys.path.append(sys.argv[1])
    import torch
    torch.set_num_threads(3)
    assert torch.equal(torch.ones(1 << 22) + 1, torch.full((1 << 22,), 2.0))

for name in sys.argv[2:]:
    globals()[name]()
print(load_kernels().level, {line.split("/", 1)[1].strip() for line in open("/proc/self/maps") if "libgomp" in line})
"""


@pytest.mark.parametrize("order", ["convert", "convert use_torch convert", "use_torch convert use_torch"])
def test_the_wheels_kernels_have_their_own_libgomp_beside_torchs(environment: Path, order: str) -> None:
    command = [environment / "bin" / "python", "-c", BOTH, sysconfig.get_path("purelib"), *order.split()]
    found = subprocess.run(
        command, check=True, capture_output=True, text=True, env=clean_environment(), cwd=environment
    ).stdout
    assert not found.startswith("none")
    assert "quire_llm.libs/libgomp" in found
    assert found.count("libgomp") == (2 if "use_torch" in order else 1)


def test_the_installed_server_answers(url: str) -> None:
    body = {"model": "quire-mini", "prompt": "Question: What is the capital of France?\nAnswer:", "temperature": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert json.load(reply)["choices"][0]["text"] == " Paris"
