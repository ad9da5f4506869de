"""Paged attention matches plain attention over each sequence alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attention.world import World, check_reading_what_another_writes
from quire.attention.torch_attention import TorchAttention

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    lens=st.lists(
        st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.just(1), st.integers(1, 20))), min_size=1, max_size=8
    ),
    block_size=st.sampled_from([1, 2, 4, 16]),
    num_kv_heads=st.sampled_from([1, 2, 3]),
    groups=st.sampled_from([1, 2, 7]),
    head_dim=st.sampled_from([4, 8, 20]),
    num_shared_blocks=st.integers(0, 3),
    seed=st.integers(0, 2**16),
)
def test_ragged_batches_of_prefill_and_decode(
    device: str, lens: list[tuple[int, int]], block_size: int, num_kv_heads: int, groups: int, head_dim: int,
    num_shared_blocks: int, seed: int,
) -> None:  # fmt: skip
    World(
        lens, block_size=block_size, num_kv_heads=num_kv_heads, groups=groups, head_dim=head_dim, seed=seed,
        num_shared_blocks=num_shared_blocks, device=device,
    ).check(2e-5)  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close(dtype: torch.dtype, device: str) -> None:
    lens = [(0, 5), (37, 1), (16, 1), (3, 17), (120, 1), (121, 1), (0, 1)]
    World(lens, block_size=16, num_kv_heads=2, groups=3, head_dim=64, seed=0, dtype=dtype, device=device).check(2e-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_seqs", [1, 2, 5, 33])
def test_decode_batches_of_unlike_lengths(num_seqs: int, device: str) -> None:
    lens = [((i * 37) % 300, 1) for i in range(num_seqs)]
    World(lens, block_size=16, num_kv_heads=2, groups=2, head_dim=16, seed=1, device=device).check(2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_padding_is_written_nowhere(device: str) -> None:
    lens = [(5, 1), (9, 3), (0, 4), (6, 1)]
    World(lens, block_size=4, num_kv_heads=2, groups=2, head_dim=8, seed=2, device=device).check(
        2e-5, with_padding=True
    )


def test_a_sequence_reads_what_another_writes_in_the_same_step() -> None:
    check_reading_what_another_writes(TorchAttention)


OPTIONS = [
    {"window": 16},
    {"window": 5, "has_sinks": True},
    {"softcap": 3.0, "scale": 0.7},
    {"value_dim": 12, "has_latent": True},
    {"value_dim": 40, "window": 70, "softcap": 20.0, "has_sinks": True},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_windows_caps_sinks_and_values_of_another_size(options: dict[str, Any], device: str) -> None:
    lens = [(0, 20), (37, 1), (16, 1), (3, 17), (120, 1), (90, 40), (0, 1)]
    World(lens, block_size=4, num_kv_heads=2, groups=3, head_dim=20, seed=0, device=device, **options).check(2e-5)
