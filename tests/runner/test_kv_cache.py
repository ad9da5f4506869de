"""Whole blocks are cleared, copied and compared bit by bit, whatever they hold."""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

from quire.attention.interface import KVLayout, LayerAttention
from quire.ops.arrays import as_numpy, is_numpy, numpy_dtype
from quire.outputs import BlockDifference
from quire.runner.kv_cache import KVCache

LAYOUT = KVLayout.uniform(num_layers=3, num_kv_heads=2, block_size=4, head_dim=5)


@pytest.fixture(params=itertools.product(["float32", "bfloat16", "float16"], ["cpu", "cpu:0"]), ids="-".join)
def cache(request: pytest.FixtureRequest) -> KVCache:
    """A cache of random bytes, NaNs among them: an array, or a tensor in main memory."""
    dtype, device = request.param
    cache = KVCache(6, LAYOUT, numpy_dtype(dtype), device)
    assert is_numpy(cache.blocks) == (device == "cpu")
    memory = as_bytes(cache)
    memory[:] = np.random.default_rng(0).integers(0, 256, memory.shape, dtype=np.uint8)
    return cache


def as_bytes(cache: KVCache) -> np.ndarray:
    blocks = as_numpy(cache.blocks)
    return blocks.reshape(len(blocks), -1).view(np.uint8)


def test_cleared_blocks_are_zero_and_others_stay(cache: KVCache) -> None:
    before = as_bytes(cache).copy()
    cache.clear([4, 1])
    assert not as_bytes(cache)[[1, 4]].any()
    assert np.array_equal(as_bytes(cache)[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
    cache.clear([])


def test_all_reads_of_copies_come_before_all_writes(cache: KVCache) -> None:
    before = as_bytes(cache).copy()
    cache.write([1, 2, 5], cache.read([0, 1, 1]))
    assert np.array_equal(as_bytes(cache), before[[0, 0, 1, 3, 4, 1]])


def test_one_bit_is_a_difference_and_equal_nans_are_none(cache: KVCache) -> None:
    cache.write([3], cache.read([0]))
    assert cache.compare(0, 3) is None
    as_bytes(cache)[3, -1] ^= 1
    assert cache.compare(0, 3) == BlockDifference(1, 3 * 2 * 2 * 4 * 5, 2)


def test_memory_that_is_given_back_is_free_and_the_rest_of_a_block_stays() -> None:
    windowed, full = LayerAttention(8, 8, 128, window=16), LayerAttention(8, 8, 128)
    layout = KVLayout([windowed, full, windowed, windowed], block_size=16)
    cache = KVCache(64, layout, numpy_dtype("float32"), is_sparse=True)
    cache.blocks[:] = 1.0
    before = resident_bytes()
    cache.give_back([*((block, False) for block in range(32)), (40, True)])
    expected = 32 * 3 / 4 + 1
    assert before - resident_bytes() == pytest.approx(expected * cache.blocks[0].nbytes, rel=0.05)
    assert cache.blocks[31, : layout.thin_numel].all()
    assert not cache.blocks[31, layout.thin_numel :].any()
    assert not cache.blocks[40].any()
    assert cache.blocks[32].all()
    keys, _ = layout.parts(cache.blocks, 1)
    assert keys[31].all()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
