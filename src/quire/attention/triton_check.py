"""Compare the Triton kernels with torch on this device, before requests depend on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from quire.attention.interface import AttentionBatch, KVLayout
from quire.attention.torch_attention import TorchAttention
from quire.attention.triton_attention import TritonAttention
from quire.ops.triton_check import compare

_CASES = ((299, 1), (30, 20))  # tokens in the cache and in the step: a decode of several parts, and a prompt
#: Of values around one. Torch may round products of float32 to TF32.
_TOLERANCE = {"float32": 5e-3, "float16": 1e-2, "bfloat16": 4e-2}


def check_kernels(attention: TritonAttention) -> None:
    """Compute random attention for each kind of layer, with torch too. ValueError if a kernel fails or differs.

    The kernels are compiled here, or read from Triton's cache: seconds per kind of layer, once per machine.
    """
    size, device, dtype = attention.layout.block_size, attention.device, attention.dtype
    layout = KVLayout(attention.kinds, size)
    counts = [-(-(context + queries) // size) for context, queries in _CASES]
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    cache = draw(*layout.shape(sum(counts)))
    tables = np.zeros((2, max(counts)), np.int32)
    tables[0, : counts[0]], tables[1, : counts[1]] = np.arange(counts[0]), counts[0] + np.arange(counts[1])
    positions = [np.arange(context, context + queries) for context, queries in _CASES]
    slots = [table[at // size].astype(np.int64) * size + at % size for table, at in zip(tables, positions, strict=True)]
    starts = np.cumsum([0, *(len(each) for each in slots)])
    batch = AttentionBatch(starts, np.array([sum(case) for case in _CASES]), tables, np.concatenate(slots))
    backends = TorchAttention(cache.clone(), layout), TritonAttention(cache, layout)
    for index, layer in enumerate(attention.kinds):
        q = draw(starts[-1], layer.num_heads, layer.head_dim)
        k = draw(starts[-1], layer.num_kv_heads, layer.head_dim)
        v = None if layer.has_latent else draw(starts[-1], layer.num_kv_heads, layer.value_dim)
        expected, found = (partial(_attend, backend, batch, index, q, k, v) for backend in backends)
        compare(f"attention of {layer}", expected, found, tolerance=_TOLERANCE, largest=1.0)


def _attend(backend: Any, batch: AttentionBatch, *given: Any) -> torch.Tensor:
    backend.plan(batch)
    return backend.attend(*given)
