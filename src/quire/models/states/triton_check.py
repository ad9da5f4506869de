"""Compare the Triton kernels of recurrent states with numpy on this device, before requests depend on them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from quire.attention.block_records import BlockRecords
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, LayerState
from quire.attention.states import LayerStates, StatePlan
from quire.attention.triton_attention import TritonAttention
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear
from quire.models.states.linear_attention import LinearAttention
from quire.models.states.short_conv import ShortConv
from quire.ops.arrays import as_tensor
from quire.ops.triton_check import compare

_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}  # of the largest value
#: A prompt of 11 tokens in blocks of 8, and the ninth one behind the state that this leaves.
_BATCH = AttentionBatch(np.array([0, 11, 12]), np.array([11, 9]), np.array([[0, 1], [0, 2]], np.int32), np.full(12, -1))


def check_states(model: CausalLM) -> None:
    """Compute random tokens with a model's kind of layer. ValueError if a kernel fails or differs."""
    expected, found = (functools.partial(_compute, model, device) for device in ("cpu", model.device))
    compare("recurrent states", expected, found, "use device cpu", _TOLERANCE)


def _compute(model: CausalLM, device: str) -> torch.Tensor:
    """Return outputs in main memory, [num_tokens, features] in the model's dtype, which numpy computes on cpu."""
    kind: Any = next(type(each) for each in model.modules() if isinstance(each, LinearAttention | ShortConv))
    net, dtype = kind(model.config, model.split, 0, dtype=model.dtype, device="meta"), model.dtype
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).to(device, dtype)

    for module in net.modules():
        for name, weight in [] if isinstance(module, Linear) else [*module.named_parameters()]:
            setattr(module, name, draw(*weight.shape))
    given = [draw(12, each.weight.shape[0]) for name, each in net.named_children() if name.startswith("in_proj")]
    given += [None] if len(given) == 1 and kind is not ShortConv else []
    floats = next(each.num_floats for each in model.attention_layers() if isinstance(each, LayerState))
    if device == "cpu":
        plan = StatePlan(4 * floats, 8)
        plan.plan(_BATCH)
        states = LayerStates(np.zeros((3, floats), np.float32), 0, floats, plan)
        return as_tensor(net._compute(*given, states, None)).to(dtype)
    layout = KVLayout([LayerAttention(1, 1, 64), LayerState(floats, dtype.itemsize)], 8)
    cache = torch.zeros((3 * layout.num_records, layout.thin_numel), dtype=dtype, device=device)
    attention = TritonAttention(cache, layout, BlockRecords(layout, 3, len(cache)))
    attention.plan(_BATCH)
    return attention.attend(1, given[0], given[-1] if len(given) > 1 else None, None, net._rule).cpu()
