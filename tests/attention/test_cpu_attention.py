"""The CPU kernel matches plain attention at every level of this processor."""

from __future__ import annotations

from functools import partial
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attention.test_torch_attention import OPTIONS
from attention.world import MakeBackend, World, check_reading_what_another_writes
from kernel_levels import LEVELS, library_of
from parameters import quick
from quire.assembly.runner import make_attention
from quire.attention import cpu_attention
from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention
from quire.attention.torch_attention import TorchAttention
from quire.kernels.loaded import load_kernels
from quire.ops.arrays import numpy_dtype
from quire.runner.kv_cache import KVCache

DTYPES = [torch.float32, torch.bfloat16]
HEADS = [(64, 7), (96, 2), (20, 9)]  #: size, and query heads for each of keys and values
WINDOWS = [0, 65, 256, 300]
OF_LAYERS = [*OPTIONS, {"window": 300, "has_sinks": True}]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


@pytest.fixture(params=LEVELS)
def make(request: pytest.FixtureRequest) -> MakeBackend:
    """Make the backend of one level."""
    return partial(CpuAttention, library=library_of(request.param))


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    lens=st.lists(
        st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.just(1), st.integers(1, 20))), min_size=1, max_size=6
    ),
    shape=st.fixed_dictionaries(
        {
            "block_size": st.sampled_from([1, 3, 4, 16, 40]),
            "num_kv_heads": st.sampled_from([1, 2, 3]),
            "groups": st.sampled_from([1, 2, 7, 9]),
            "head_dim": st.sampled_from([4, 5, 20, 33, 64, 80]),
            "num_shared_blocks": st.integers(0, 3),
        }
    ),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    is_strided=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_ragged_batches_of_prefill_and_decode(
    make: MakeBackend, lens: list[tuple[int, int]], shape: dict[str, int], dtype: torch.dtype, is_strided: bool,
    seed: int,
) -> None:  # fmt: skip
    # Slots past a sequence's end hold a former owner's data, and are never read.
    World(lens, **shape, dtype=dtype, is_strided=is_strided, seed=seed, make=make, past_end=np.nan).check(
        TOLERANCE[dtype]
    )


@pytest.mark.parametrize(
    ("head_dim", "groups", "block_size", "dtype"),
    [
        (96, 4, 16, torch.bfloat16),
        (128, 4, 16, torch.float32),
        (256, 4, 32, torch.bfloat16),
        (64, 1, 16, torch.bfloat16),
        (64, 7, 48, torch.bfloat16),
        (128, 16, 16, torch.bfloat16),
    ],
)
def test_long_contexts_and_prompts_are_cut_and_put_together(
    make: MakeBackend, head_dim: int, groups: int, block_size: int, dtype: torch.dtype
) -> None:
    """Contexts at the edges of blocks, tiles and spans; a prompt with several tiles of queries, one of them of size
    one.
    """
    lens = [(255, 1), (256, 1), (527, 1), (15, 1), (16, 1), (31, 1), (32, 1), (270, 96 // groups + 1)]
    World(
        lens, block_size=block_size, num_kv_heads=1, groups=groups, head_dim=head_dim, seed=1, dtype=dtype, make=make,
        past_end=np.nan,
    ).check(TOLERANCE[dtype])  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "options", "dtype"),
    quick(
        [
            *zip(cycle(HEADS), OF_LAYERS, cycle(DTYPES)),
            *zip(cycle(HEADS[1:] + HEADS[:1]), OF_LAYERS, cycle(DTYPES[::-1])),
        ],
        product(HEADS, OF_LAYERS, DTYPES),
    ),
)
def test_windows_caps_sinks_and_values_of_another_size(
    make: MakeBackend, heads: tuple[int, int], options: dict[str, Any], dtype: torch.dtype
) -> None:
    """Windows that begin within tiles and spans, at their edges and before them."""
    lens = [(0, 20), (270, 1), (271, 1), (300, 70), (127, 1), (690, 1), (560, 3), (0, 1), (0, 300)]
    World(
        lens, block_size=16, num_kv_heads=2, groups=heads[1], head_dim=heads[0], seed=3, dtype=dtype, make=make,
        past_end=np.nan, **options,
    ).check(TOLERANCE[dtype])  # fmt: skip


def test_padding_is_written_nowhere(make: MakeBackend) -> None:
    lens = [(5, 1), (9, 3), (0, 4), (6, 1)]
    World(lens, block_size=4, num_kv_heads=2, groups=2, head_dim=8, seed=2, make=make).check(2e-5, with_padding=True)


def test_a_sequence_reads_what_another_writes_in_the_same_step(make: MakeBackend) -> None:
    check_reading_what_another_writes(make)


def test_threads_and_neighbours_do_not_change_a_bit(make: MakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The splits of a context depend on its length only."""
    layout = KVLayout.uniform(1, 2, 16, 64, groups=7)
    cache = torch.randn(layout.shape(180), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    q, k, v = (torch.randn(3, heads, 64).to(torch.bfloat16) for heads in (14, 2, 2))
    tables = np.arange(180, dtype=np.int32).reshape(3, 60)
    lens = np.array([900, 100, 513])  # enough work for several threads

    def attend(rows: list[int], num_threads: int) -> torch.Tensor:
        monkeypatch.setattr(cpu_attention, "num_threads", lambda: num_threads)
        backend = make(cache.clone(), layout)
        slots = tables[rows, (lens[rows] - 1) // 16].astype(np.int64) * 16 + (lens[rows] - 1) % 16
        backend.plan(AttentionBatch(np.arange(len(rows) + 1), lens[rows], tables[rows], slots))
        return backend.attend(0, q[rows], k[rows], v[rows])

    together = attend([0, 1, 2], 2)
    assert torch.equal(together, attend([0, 1, 2], 1))
    assert torch.equal(together, torch.cat([attend([i], 2) for i in range(3)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_spans_that_sequences_have_in_common_change_no_bit(make: MakeBackend, dtype: torch.dtype) -> None:
    """Three samples of one prompt, a neighbour that shares less, one apart, and two that share all whole spans."""
    lens = np.array([700, 610, 640, 590, 300, 513, 512])
    num_shared = (0, 528, 528, 272, 0, 0, 512)  # tokens shared with the previous row
    layout = KVLayout.uniform(1, 2, 16, 64, groups=7)
    tables = np.arange(7 * 48, dtype=np.int32).reshape(7, 48)
    for row, tokens in enumerate(num_shared):
        tables[row, : tokens // 16] = tables[row - 1, : tokens // 16]
    generator = torch.Generator().manual_seed(5)
    cache = torch.randn(layout.shape(tables.size), generator=generator).to(dtype)
    q, k, v = (torch.randn(7, heads, 64, generator=generator).to(dtype) for heads in (14, 2, 2))
    slots = tables[np.arange(7), (lens - 1) // 16].astype(np.int64) * 16 + (lens - 1) % 16
    slots[6] = -1  # its last block is the previous row's, which already holds its token

    def attend(rows: list[int], kept: torch.Tensor) -> torch.Tensor:
        backend = make(kept, layout)
        backend.plan(AttentionBatch(np.arange(len(rows) + 1), lens[rows], tables[rows], slots[rows]))
        return backend.attend(0, q[rows], k[rows], v[rows])

    together = attend(list(range(7)), cache)
    backend = make(cache, layout)
    backend.plan(AttentionBatch(np.arange(8), lens, tables, slots))
    (plan,) = backend.plans.values()
    units = plan.units
    assert sorted(units[:, 2].tolist()) == [1] * 10 + [2, 3, 4]
    for row in range(7):
        assert torch.equal(together[row], attend([row], cache)[0])


@pytest.mark.parametrize(
    ("heads", "dtype", "window"),
    quick(
        [(heads, dtype, window) for heads, (dtype, window) in zip(cycle(HEADS), product(DTYPES, WINDOWS))],
        product(HEADS, DTYPES, WINDOWS),
    ),
)
def test_a_prompt_has_the_same_bits_in_pieces_of_any_length(
    make: MakeBackend, heads: tuple[int, int], dtype: torch.dtype, window: int
) -> None:
    head_dim, groups = heads
    """Whole, in pieces, and token by token, over the edges of tiles and spans."""
    layout = KVLayout([LayerAttention(2 * groups, 2, head_dim, window=window)], 16)
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(600, heads, head_dim, generator=generator).to(dtype) for heads in (2 * groups, 2, 2))
    table = np.random.default_rng(0).permutation(38).astype(np.int32)
    slots = table[np.arange(600) // 16].astype(np.int64) * 16 + np.arange(600) % 16

    def attend(ends: list[int]) -> torch.Tensor:
        backend = make(torch.zeros(layout.shape(38), dtype=dtype), layout)
        outs = []
        for first, end in zip([0, *ends], ends, strict=False):
            starts = np.array([0, end - first])
            backend.plan(AttentionBatch(starts, np.array([end]), table[None], slots[first:end]))
            outs.append(backend.attend(0, q[first:end], k[first:end], v[first:end]))
        return torch.cat(outs)

    whole = attend([600])
    assert torch.equal(whole, attend(list(range(1, 601))))
    assert torch.equal(whole, attend([1, 18, 58, 127, 129, 255, 256, 257, 400, 513, 599, 600]))


def test_an_engine_takes_the_kernel_where_it_has_the_dtype() -> None:
    layout = KVLayout.uniform(1, 1, 4, 8, groups=2)
    kernels = load_kernels()
    for dtype in ("float32", "bfloat16", "float16"):
        backend = make_attention(KVCache(2, layout, numpy_dtype(dtype)).blocks, layout)
        has_kernel = kernels.functions is not None and dtype != "float16"
        assert isinstance(backend, CpuAttention if has_kernel else TorchAttention)
