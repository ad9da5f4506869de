"""The device of an engine is chosen by what the machine shows; torch is asked last."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

import quire.devices as devices
from quire.devices import check_devices, choose_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A torch that finds `count` CUDA devices on a machine that shows a GPU."""
    cuda = SimpleNamespace(count=2)
    cuda.is_available = lambda: cuda.count > 0
    cuda.device_count = lambda: cuda.count
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    monkeypatch.setattr(devices, "_GPU_FILES", ("/dev/null",))
    return cuda


def test_a_gpu_that_torch_finds_is_taken(gpus: SimpleNamespace) -> None:
    assert choose_device("auto") == choose_device("cuda") == "cuda"
    assert choose_device("cpu") == "cpu"
    check_devices("auto", 2)
    with pytest.raises(ValueError, match="tensor_parallel_size=3 needs as many CUDA devices, and torch finds 2"):
        check_devices("auto", 3)
    gpus.count = 0
    assert choose_device("auto") == "cpu"
    check_devices("auto", 3)
    with pytest.raises(ValueError, match=r"torch finds no CUDA device; .*quire-llm\[torch"):
        choose_device("cuda")


def test_without_a_gpu_torch_is_not_asked(gpus: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_GPU_FILES", ("/dev/quire-none",))
    gpus.is_available = None
    assert choose_device("auto") == "cpu"


def test_a_gpu_without_torch_is_told_of_and_not_used(
    gpus: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        assert choose_device("auto") == "cpu"
    assert "pip install 'quire-llm[torch]'" in caplog.text
    with pytest.raises(ValueError, match=r"torch is not installed; .*quire-llm\[torch"):
        choose_device("cuda")
