"""Passes on a GPU take all arrays from its memory, and never wait for it. Tensors without content stand in for its."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from checkpoints import ONE_OF_EACH_KIND, make_config
from quire.attention.triton_states import TritonStates
from quire.models import experts
from quire.models.base import CausalLM
from quire.models.linear import quantized_weight
from quire.models.registry import build_model, read_model_config
from quire.ops import functions

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from triton.runtime import interpreter

from quire.models.linear import triton_weight
from quire.models.linear.triton_weight import TritonWeight

NUM_TOKENS = 5
DEVICE = "meta"


class OnDevice(TorchDispatchMode):
    """Refuses operations with arrays in main memory, other than single numbers."""

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        check_devices(str(function), (args, kwargs, found))
        return found


def check_devices(name: str, values: Any) -> None:
    for each in tree_leaves(values):
        if isinstance(each, torch.Tensor) and each.ndim:
            assert each.device.type == DEVICE, f"{name}: {tuple(each.shape)} in main memory"


@pytest.fixture(autouse=True)
def _launch_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def launch(executor: Any, *args: Any, **more: Any) -> None:
        check_devices(executor.fn.__name__, (args, more))

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)
    for module in (functions, experts):
        monkeypatch.setattr(module, "uses_triton", lambda device: True)
    functions._of_tensors.cache_clear()
    yield
    functions._of_tensors.cache_clear()


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_pass(name: str) -> None:
    config = read_model_config(make_config(name).to_dict())
    check_pass(build_model(config, torch.bfloat16, DEVICE))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_a_pass_with_quantized_weights(quantization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_weight, "uses_triton", lambda device: True)
    monkeypatch.setattr(triton_weight, "_checked", lambda weight, dtype, *of: TritonWeight(weight, dtype))
    model = build_model(read_model_config(make_config("llama").to_dict()), torch.bfloat16, DEVICE)
    model.quantize(quantization)
    for _, layer in model.weighted_layers():
        layer.pack(DEVICE)  # type: ignore[attr-defined]
    assert isinstance(model.lm_head.packed, TritonWeight)
    check_pass(model)


def check_pass(model: CausalLM) -> None:
    layers = model.attention_layers()

    def attend(index: int, q: Any, k: Any, v: Any, sinks: Any = None) -> torch.Tensor:
        given = layers[index]
        check_devices("attend", (q, k, v, sinks))
        if callable(sinks):
            memory, plan = (torch.empty(4, 32, dtype=dtype, device=DEVICE) for dtype in (torch.float32, torch.int32))
            return sinks(TritonStates(memory, {"RECORD": 32, "NUM_RECORDS": 2}, 0, plan, 0, [(0, len(q))]), q, k, v)
        assert tuple(q.shape[1:]) == (given.num_heads, given.head_dim)
        return torch.empty((len(q), given.num_heads, given.value_dim), dtype=q.dtype, device=DEVICE)

    ids, positions = (torch.empty(NUM_TOKENS, dtype=torch.int64, device=DEVICE) for _ in range(2))
    rows = torch.empty(2, dtype=torch.int64, device=DEVICE)
    model(ids, positions, attend)  # copies some tables to the device
    with OnDevice():
        hidden = model(ids, positions, attend)
        assert model.compute_logits(hidden).shape == (NUM_TOKENS, model.config.vocab_size)
        assert len(model(ids, positions, attend, rows=rows)) == 2
