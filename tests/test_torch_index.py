"""`make` installs the torch that fits the machine, reports it, and never hangs."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@pytest.fixture
def torch_index() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_index", ROOT / "tools" / "torch_index.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("is_reachable", [True, False])
def test_without_a_gpu_torch_is_the_cpu_build_where_its_index_answers(
    torch_index: ModuleType, monkeypatch: pytest.MonkeyPatch, is_reachable: bool
) -> None:
    monkeypatch.setattr(torch_index, "is_reachable", lambda index: is_reachable)
    url, why = torch_index.choose({}, has_cuda_build=True, has_gpu=False)
    assert url == (torch_index.CPU_INDEX if is_reachable else "")
    assert ("there is no NVIDIA GPU" if is_reachable else "cannot be reached") in why


def test_a_gpu_another_system_and_whoever_knows_better_are_not_overruled(
    torch_index: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_index, "is_reachable", lambda index: True)
    assert torch_index.choose({}, has_cuda_build=True, has_gpu=True)[0] == ""
    assert torch_index.choose({}, has_cuda_build=False, has_gpu=False)[0] == ""
    for chosen in ("https://example.org/cu128", ""):
        given = {"TORCH_INDEX_URL": chosen}
        assert torch_index.choose(given, has_cuda_build=True, has_gpu=False)[0] == chosen


def test_an_index_that_does_not_answer_is_given_up_soon(torch_index: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts connections, and sends nothing
        began = time.monotonic()
        assert not torch_index.is_reachable(f"http://127.0.0.1:{listener.getsockname()[1]}", within_s=0.3)
        assert time.monotonic() - began < 5


def test_the_pinned_torch_is_the_cpu_index_s_too() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    [pin] = [Requirement(line) for line in lines if line.startswith("torch==")]
    [clause] = pin.specifier
    assert pin.specifier.contains(f"{clause.version}+cpu")


def test_serving_needs_torch_with_a_gpu_or_without_kernels_only(torch_index: ModuleType) -> None:
    assert not torch_index.why_torch(has_gpu=False, has_kernels=True)
    assert "an NVIDIA GPU" in torch_index.why_torch(has_gpu=True, has_kernels=True)
    assert "quire kernels build" in torch_index.why_torch(has_gpu=False, has_kernels=False)


def test_make_serve_asks_whether_it_needs_torch_and_the_tests_install_it() -> None:
    def steps(goal: str) -> str:
        asked = ["make", "-n", "-B", "PYTHON=python3", goal]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60).stdout

    assert "torch" not in steps(".venv/.installed")
    serve, dev = steps("serve"), steps(".venv/.installed-dev")
    assert serve.index("--editable .\n") < serve.index("torch_index.py --why") < serve.index("--editable '.[torch]'")
    assert "build.py --native" in serve[: serve.index("torch_index.py --why")]
    for each in (serve, dev):
        assert "$(.venv/bin/python tools/torch_index.py)" in each
        assert '--index-url "$index" torch' in each
    assert dev.index('--index-url "$index" torch') < dev.index("--editable '.[dev]'")
