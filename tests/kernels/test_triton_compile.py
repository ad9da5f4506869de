"""The Triton kernels compile for GPUs that are not here, into registers and shared memory that these have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

COMPILER = Path(__file__).parent / "triton_compiler.py"
ARCHITECTURES = ("80", "90")
SHARED_BYTES = 99 * 1024  # of a block, with compute capability 8.6; 8.0 and 9.0 have more
FEW_BYTES = 32  # spilled


def compile_cases(architecture: str, *cases: str) -> list[dict[str, Any]]:
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, COMPILER, architecture, *cases], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(architecture: str, *cases: str) -> None:
    found = compile_cases(architecture, *cases)
    assert {each["case"] for each in found} == set(cases)
    for each in found:
        assert each["shared"] <= SHARED_BYTES, each
        assert each["spilled"] <= FEW_BYTES, each
        is_float32 = "float32" in each["case"]  # which tensor cores would round
        is_product = each["kernel"] in ("attend", "multiply", "gate_up", "down")
        assert each["has_products"] == (is_product and not is_float32), each
        assert each["loads_16_bytes"] or each["kernel"] != "draw_tokens", each


def test_one_model_compiles() -> None:
    check("90", "qwen2.5-0.5b", "qwen3-30b-a3b", "qwen3-next", "sampling")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_everything_compiles(architecture: str) -> None:
    listed = subprocess.run([sys.executable, COMPILER, "list"], capture_output=True, text=True, check=True)
    check(architecture, *listed.stdout.splitlines())
