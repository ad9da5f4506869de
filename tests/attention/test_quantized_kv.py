"""The CPU kernel over a cache in 8 bits matches attention over keys and values that were quantized apart from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.world import naive
from kernel_levels import LEVELS, library_of
from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention
from quire.ops.arrays import as_tensor, numpy_dtype

DTYPES = ["float32", "bfloat16"]
LAYERS = [
    LayerAttention(14, 2, 64, scale_size=4),
    LayerAttention(4, 2, 128, softcap=20, window=40, scale_size=4),
    LayerAttention(3, 3, 20, 33, scale_size=4),
    LayerAttention(9, 1, 80, 64, has_latent=True, scale_size=4),
]


def quantize(x: np.ndarray) -> np.ndarray:
    """Return rows of bytes, float32 scale first, of x [..., dim]."""
    x = x.astype(np.float32)
    most = np.abs(x).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        factor = np.where(most > 1e-30, np.float32(127) / most, np.float32(0))
    integers = np.rint(x * factor).astype(np.int8)
    scales = np.where(most > 1e-30, most / np.float32(127), np.float32(0)).astype(np.float32)
    return np.concatenate([scales.view(np.int8), integers], -1)


def restore(rows: np.ndarray) -> np.ndarray:
    rows = np.ascontiguousarray(rows)
    return rows[..., 4:].astype(np.float32) * rows[..., :4].copy().view(np.float32)


class Sequence:
    """A text over a cache in 8 bits, computed in chunks."""

    def __init__(self, layer: LayerAttention, dtype: str, level: str, length: int) -> None:
        self.layer, self.dtype = layer, numpy_dtype(dtype)
        self.layout = KVLayout([layer], 16)
        num_blocks = -(-length // 16)
        self.cache = np.full((num_blocks + 2, self.layout.block_numel), 127, np.int8)  # NaN, once its scale is read
        self.table = np.random.default_rng(1).permutation(num_blocks + 2)[:num_blocks].astype(np.int32)
        self.attention = CpuAttention(self.cache, self.layout, library_of(level), self.dtype)
        self.q, self.k, self.v = (
            np.random.default_rng(seed).standard_normal((length, heads, size)).astype(self.dtype)
            for seed, heads, size in (
                (2, layer.num_heads, layer.head_dim),
                (3, layer.num_kv_heads, layer.head_dim),
                (4, layer.num_kv_heads, layer.value_dim),
            )
        )

    def attend(self, start: int, end: int) -> np.ndarray:
        at = np.arange(start, end)
        slots = self.table[at // 16].astype(np.int64) * 16 + at % 16
        self.attention.plan(AttentionBatch(np.array([0, end - start]), np.array([end]), self.table[None], slots))
        v = None if self.layer.has_latent else self.v[start:end]
        return self.attention.attend(0, self.q[start:end], self.k[start:end], v)

    def stored(self) -> list[np.ndarray]:
        """Return the rows of keys and of values in the cache: [tokens, num_kv_heads, size]."""
        at = np.arange(len(self.q))
        return [part[self.table[at // 16], :, at % 16] for part in self.layout.parts(self.cache, 0)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", LAYERS, ids=["groups", "window", "odd sizes", "latent"])
def test_attention_over_quantized_keys_and_values(layer: LayerAttention, dtype: str, level: str) -> None:
    text = Sequence(layer, dtype, level, 601)
    parts = [text.attend(*span) for span in ((0, 300), (300, 599), (599, 600), (600, 601))]
    keys, values = text.stored()
    assert np.array_equal(keys, quantize(text.k))
    if not layer.has_latent:
        assert np.array_equal(values, quantize(text.v))
    given = [torch.from_numpy(restore(rows)) for rows in (keys, values)]
    out = torch.from_numpy(np.concatenate(parts).astype(np.float64))
    expected = naive(layer, as_tensor(text.q), *given)
    tolerance = 2e-5 if dtype == "float32" else 2e-2
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_change_no_bit(dtype: str, level: str) -> None:
    whole, chunks = (Sequence(LAYERS[0], dtype, level, 530) for _ in range(2))
    expected = whole.attend(0, 530)
    for start, end in ((0, 7), (7, 280), (280, 281), (281, 528), (528, 529), (529, 530)):
        assert np.array_equal(chunks.attend(start, end), expected[start:end])
    assert all(np.array_equal(*pair) for pair in zip(whole.stored(), chunks.stored(), strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows(bad: float) -> None:
    """A broken model gives NaN, which ends its request, and not plausible tokens."""
    text = Sequence(LAYERS[0], "float32", LEVELS[-1], 20)
    text.k[5, 1, 63] = bad
    out = text.attend(0, 20)
    assert np.isfinite(out[:5]).all()
    assert np.isfinite(out[:, :7]).all()
    assert np.isnan(out[5:, 7:]).all()


def test_zeros_and_tiny_numbers_stay_finite() -> None:
    text = Sequence(LAYERS[0], "float32", LEVELS[-1], 20)
    text.k[:] = 0
    text.v[:] = 1e-40
    assert np.abs(text.attend(0, 20)).max() < 1e-30
