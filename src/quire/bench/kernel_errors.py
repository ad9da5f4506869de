"""`quire kernels test`: compare each kernel at each level with float64, at random shapes. See `CHECKS`."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from quire.kernels.loaded import load_library, runnable_levels
from quire.ops.arrays import numpy_dtype

#: Largest error, relative to the largest value in float64.
_ALLOWED = {"float32": 1e-5, "bfloat16": 1.5e-2}


@dataclass(frozen=True)
class Worst:
    """The largest error of a kernel at one level, over all shapes."""

    kernel: str
    dtype: str
    level: str
    error: float  #: NaN if the kernel returned NaN
    shape: str  #: where it occurred
    allowed: float

    @property
    def is_allowed(self) -> bool:
        return self.error <= self.allowed


def worst_errors(num_shapes: int, seed: int) -> Iterator[Worst]:
    """Yield errors as they are measured. Every level gets the same shapes."""
    for kernel, check in CHECKS.items():
        for dtype, allowed in _ALLOWED.items():
            for level in runnable_levels():
                chance = random.Random(seed)
                library = load_library(level)
                errors = [check(library, dtype, chance) for _ in range(num_shapes)]
                error, shape = max(errors, key=lambda each: (each[0] != each[0], each[0]))
                yield Worst(kernel, dtype, level, error, shape, allowed)


def _random(*shape: int, dtype: str, chance: random.Random) -> np.ndarray:
    return np.random.default_rng(chance.getrandbits(32)).standard_normal(shape).astype(numpy_dtype(dtype))


def _attention(library: ctypes.CDLL, dtype: str, chance: random.Random) -> tuple[float, str]:
    """Prefill, chunks and decode in random blocks of a pool that is NaN elsewhere."""
    from quire.attention.cpu_attention import CpuAttention
    from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention

    groups, num_kv_heads = chance.choice((1, 2, 7, 8, 12)), chance.choice((1, 2, 3))
    layer = LayerAttention(groups * num_kv_heads, num_kv_heads, chance.choice((20, 64, 80, 128)))
    layout = KVLayout([layer], chance.choice((1, 5, 16, 16, 32)))
    lens = [(chance.choice((0, 15, 16, 255, 300, 600)), chance.choice((1, 1, 1, 40))) for _ in range(3)]
    shape = f"{layer.num_heads} / {num_kv_heads} heads of {layer.head_dim}, {lens}"
    num_blocks = [-(-(context + queries) // layout.block_size) for context, queries in lens]
    order = chance.sample(range(sum(num_blocks)), sum(num_blocks))
    tables = np.full((len(lens), max(num_blocks)), -1, dtype=np.int32)
    cache = np.full(layout.shape(len(order)), np.nan, numpy_dtype(dtype))
    contents, slots = [], []
    for i, (context, queries) in enumerate(lens):
        tables[i, : num_blocks[i]] = [order.pop() for _ in range(num_blocks[i])]
        at = np.arange(context + queries)
        blocks, offsets = tables[i, at // layout.block_size], at % layout.block_size
        kv = _random(len(at), 2, num_kv_heads, layer.head_dim, dtype=dtype, chance=chance)
        for which, part in enumerate(layout.parts(cache, 0)):
            part[blocks[:context], :, offsets[:context]] = kv[:context, which]
        contents.append(kv)
        slots.append(blocks[context:].astype(np.int64) * layout.block_size + offsets[context:])
    starts = np.cumsum([0, *(queries for _, queries in lens)])
    q = _random(int(starts[-1]), layer.num_heads, layer.head_dim, dtype=dtype, chance=chance)
    new = np.concatenate([kv[context:] for kv, (context, _) in zip(contents, lens, strict=True)])
    backend = CpuAttention(cache, layout, library)
    backend.plan(AttentionBatch(starts, np.array([sum(each) for each in lens]), tables, np.concatenate(slots)))
    found = backend.attend(0, q, new[:, 0], new[:, 1])
    expected = []
    for i, (context, _) in enumerate(lens):
        own = q[starts[i] : starts[i + 1]].astype(np.float64).swapaxes(0, 1)
        # [heads, length, head_dim] each
        keys, values = contents[i].astype(np.float64).repeat(groups, 2).transpose(1, 2, 0, 3)
        scores = own @ keys.swapaxes(1, 2) * layer.scale
        weights = np.exp(np.triu(np.full_like(scores, -np.inf), context + 1) + scores)
        expected.append((weights / weights.sum(-1, keepdims=True) @ values).swapaxes(0, 1))
    exact = np.concatenate(expected)
    return float(np.abs(found.astype(np.float64) - exact).max() / np.abs(exact).max()), shape


#: Kernel name -> function of (library, dtype, random) that returns the error at one random shape, and the shape.
CHECKS: dict[str, Callable[[ctypes.CDLL, str, random.Random], tuple[float, str]]] = {"attention": _attention}
