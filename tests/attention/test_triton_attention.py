"""The Triton kernels match plain attention: on a GPU, or on a CPU by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attention.test_torch_attention import OPTIONS
from attention.world import World, check_reading_what_another_writes
from quire.assembly import runner as assembly_runner
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention
from quire.attention.torch_attention import TorchAttention
from quire.kernels import loaded

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from quire.attention import triton_attention
from quire.attention.triton_attention import TritonAttention
from quire.models.recorded_passes import RecordedPasses
from quire.ops import on_triton
from simulated_gpu import fake_graphs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
RAGGED = {
    "lens": st.lists(
        st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.just(1), st.integers(1, 20))), min_size=1, max_size=3
    ),
    "shape": st.fixed_dictionaries(
        {
            "block_size": st.sampled_from([1, 3, 16, 40]),
            "num_kv_heads": st.sampled_from([1, 2, 3]),
            "groups": st.sampled_from([1, 2, 7, 9, 20]),
            "head_dim": st.sampled_from([4, 20, 33, 64]),
            "num_shared_blocks": st.integers(0, 3),
        }
    ),
    "dtype": st.sampled_from(sorted(TOLERANCE, key=str)),
    "is_strided": st.booleans(),
    "seed": st.integers(0, 2**16),
}
quickly = settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check(lens: list[tuple[int, int]], dtype: torch.dtype = torch.float32, **shape: Any) -> None:
    """Slots past a sequence's end hold a former owner's data, and are never read."""
    World(lens, dtype=dtype, device=DEVICE, make=TritonAttention, past_end=np.nan, **shape).check(TOLERANCE[dtype])


@quickly
@given(**RAGGED)
def test_ragged_batches_of_prefill_and_decode(lens: list[tuple[int, int]], shape: dict[str, int], **more: Any) -> None:
    check(lens, **shape, **more)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(quickly, max_examples=60)
@given(**RAGGED)
def test_many_ragged_batches(lens: list[tuple[int, int]], shape: dict[str, int], **more: Any) -> None:
    check(lens, **shape, **more)


@pytest.mark.parametrize(
    ("head_dim", "groups", "dtype"),
    [
        (64, 2, torch.bfloat16),
        (80, 5, torch.float16),
        (96, 1, torch.float16),
        (128, 4, torch.bfloat16),
        pytest.param(192, 1, torch.bfloat16, marks=pytest.mark.slow),
        (256, 2, torch.bfloat16),
    ],
)
def test_heads_of_any_size_at_the_edges_of_blocks_and_spans(head_dim: int, groups: int, dtype: torch.dtype) -> None:
    lens = [(15, 1), (256, 1), (30, 9)]
    check(lens, dtype, block_size=16, num_kv_heads=1, groups=groups, head_dim=head_dim, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_long_contexts_of_many_lengths() -> None:
    lens = [(0, 300), (254, 1), (255, 1), (256, 1), (527, 1), (2200, 1), (1023, 8), (270, 70)]
    check(lens, torch.float16, block_size=16, num_kv_heads=1, groups=3, head_dim=64, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_latents_of_many_heads() -> None:
    """Of DeepSeek's size: more query heads than a tile has rows, and values that are a part of the keys."""
    lens = [(257, 1), (20, 9)]
    check(
        lens, torch.bfloat16, block_size=16, num_kv_heads=1, groups=40, head_dim=576, value_dim=512, has_latent=True,
        seed=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in OPTIONS[:3]),
        *OPTIONS[3:],
        {"window": 300, "has_sinks": True},
    ],
    ids=str,
)
def test_windows_caps_sinks_and_values_of_another_size(options: dict[str, Any]) -> None:
    """Also windows that begin within tiles and spans, and drafts that see different spans of a long context."""
    lens = [(0, 20), (16, 1), (254, 3)]
    check(lens, block_size=4, num_kv_heads=1, groups=3, head_dim=20, seed=0, **options)


def test_padding_is_written_nowhere() -> None:
    lens = [(5, 1), (9, 3), (0, 4), (6, 1)]
    World(lens, block_size=4, num_kv_heads=2, groups=2, head_dim=8, seed=2, device=DEVICE, make=TritonAttention).check(
        2e-5, with_padding=True
    )


@pytest.mark.skipif(DEVICE == "cuda", reason="makes its cache on the CPU")
def test_a_sequence_reads_what_another_writes_in_the_same_step() -> None:
    check_reading_what_another_writes(TritonAttention)


def test_a_step_without_sequences() -> None:
    layout = KVLayout.uniform(1, 1, 4, 8)
    attention = TritonAttention(torch.zeros(layout.shape(2), device=DEVICE), layout)
    empty = np.empty(0, np.int64)
    attention.plan(AttentionBatch(np.zeros(1, np.int64), empty, np.empty((0, 1), np.int32), empty))
    x = torch.empty(0, 1, 8, device=DEVICE)
    assert attention.attend(0, x, x, x).shape == (0, 1, 8)


class Sequences:
    """Sequences with random K and V in the cache, whose last `counts` tokens attend."""

    def __init__(self, lens: list[int], counts: list[int], dtype: torch.dtype = torch.bfloat16, **more: Any) -> None:
        self.layout = KVLayout([LayerAttention(6, 2, 64, **more)], 16)
        generator = torch.Generator().manual_seed(7)
        widest = -(-max(lens) // 16)
        self.tables = np.random.default_rng(0).permutation(len(lens) * widest).astype(np.int32).reshape(-1, widest)
        self.lens, self.counts = np.array(lens), counts

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(DEVICE, dtype)

        self.cache = draw(*self.layout.shape(self.tables.size))
        self.q = [draw(count, 6, 64) for count in counts]

    def attend(self, rows: list[int], counts: list[int] | None = None, lens: np.ndarray | None = None) -> torch.Tensor:
        """Attend with the first `counts` queries of these sequences, in a step of their own."""
        counts = [self.counts[row] for row in rows] if counts is None else counts
        starts = np.cumsum([0, *counts])
        attention = TritonAttention(self.cache, self.layout)
        slots = np.full(int(starts[-1]), -1)
        attention.plan(AttentionBatch(starts, self.lens[rows] if lens is None else lens, self.tables[rows], slots))
        q = torch.cat([self.q[row] for row in rows]) if lens is None else self.q[rows[0]][: counts[0]]
        return attention.attend(0, q, q[:, :2], q[:, :2])


def test_neighbours_change_no_bit() -> None:
    """The parts of a context depend on its length only."""
    sequences = Sequences([20, 70, 300], [1, 12, 3])
    together = sequences.attend([2, 0, 1])
    alone = [sequences.attend([row]) for row in (2, 0, 1)]
    assert torch.equal(together, torch.cat(alone))


def multiply(builder: object, a: TensorHandle, b: TensorHandle, sums: TensorHandle, *more: object) -> TensorHandle:
    """Multiply as a GPU does: a row's bits do not depend on its place in the tile. (They do in numpy.)"""
    left, right = (x.data.astype(np.float32) for x in (a, b))
    return TensorHandle((left[:, :, None] * right).sum(1) + sums.data, sums.dtype.scalar)


@pytest.mark.parametrize("window", [0, 20])
def test_a_prompt_has_the_same_bits_in_pieces(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more tokens than a decode and its drafts."""
    if DEVICE == "cpu":
        monkeypatch.setattr(InterpreterBuilder, "create_dot", multiply)
    sequences = Sequences([70], [70], window=window)
    whole, pieces = sequences.attend([0]), []
    for first, end in ((0, 11), (11, 40), (40, 70)):
        piece = Sequences([70], [70], window=window)
        piece.q[0] = sequences.q[0][first:end]
        pieces.append(piece.attend([0], [end - first], np.array([end])))
    assert torch.equal(whole, torch.cat(pieces))


def test_a_pool_may_have_more_than_two_to_the_31_values() -> None:
    """Memory of the first block that nothing touches is not there."""
    layout = KVLayout.uniform(1, 1, 16, 16)
    stride = 2**31 + 16
    memory = torch.empty(stride + layout.block_numel, dtype=torch.float16, device=DEVICE)
    cache = memory.as_strided((2, layout.block_numel), (stride, 1))
    cache[:] = torch.randn(layout.shape(2), generator=torch.Generator().manual_seed(0))
    attention, reference = TritonAttention(cache, layout), TorchAttention(cache.clone(), layout)
    q, k, v = (torch.randn(1, 1, 16).to(cache) for _ in range(3))
    for each in (attention, reference):
        each.plan(AttentionBatch(np.array([0, 1]), np.array([20]), np.array([[0, 1]], np.int32), np.array([19])))
    found, expected = (each.attend(0, q, k, v) for each in (attention, reference))
    torch.testing.assert_close(found, expected, rtol=4e-3, atol=4e-3)
    assert torch.equal(layout.parts(cache, 0)[0][1, 0, 3], k[0, 0])


# -- CUDA graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(DEVICE == "cuda", reason="records with a stand-in")
def test_a_graph_repeats_a_pass_with_any_plan_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans with other contexts, fewer sequences and drafts. One that needs more memory is recorded anew."""
    monkeypatch.setattr(triton_attention, "_PLACES", 4)
    sequences = Sequences([20, 300, 70, 700, 290, 9, 30], [1, 1, 1, 1, 4, 1, 2])
    attention, passes = TritonAttention(sequences.cache, sequences.layout), RecordedPasses()

    def compute(attend: Callable[..., torch.Tensor], q: torch.Tensor) -> torch.Tensor:
        return attend(0, 2 * q / 2, q[:, :2], q[:, :2])

    steps = [  # sequences, and how often each graph has been repeated
        ([0, 5], [0]),
        ([2, 0], [1]),
        ([0, 1], [1, 0]),  # a context in parts, which are joined
        ([3, 1], [1, 0, 0]),  # more parts than there was room for
        ([1, 0], [1, 0, 1]),
        ([0, 2], [1, 0, 1, 0]),  # again without parts, on the new memory
        ([0, 1, 2, 3, 5, 6, 4], [1, 0, 1, 0, 0]),  # 11 tokens
        ([3, 2, 0, 5, 6, 4], [1, 0, 1, 0, 0, 0]),  # 10 tokens
        ([3, 0, 5, 6, 4], [1, 0, 1, 0, 0, 1]),  # 9, and padding
    ]
    with fake_graphs(monkeypatch) as graphs:
        for rows, num_replays in steps:
            starts = np.cumsum([0, *(sequences.counts[row] for row in rows)])
            slots = np.full(int(starts[-1]), -1)
            attention.plan(AttentionBatch(starts, sequences.lens[rows], sequences.tables[rows], slots))
            q = torch.cat([sequences.q[row] for row in rows])
            found = passes.run(lambda *given: given, compute, attention.attend, q)
            assert torch.equal(found, sequences.attend(rows)), rows
            assert [graph.num_replays for graph in graphs] == num_replays


# -- the choice ------------------------------------------------------------------------------------------------------


def test_a_gpu_has_triton_unless_kernels_are_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIRE_KERNELS", raising=False)
    assert loaded.uses_triton("cuda")
    assert not loaded.uses_triton("cpu")
    with_triton = loaded.describe_triton()
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    assert not loaded.uses_triton("cuda")
    monkeypatch.delenv("QUIRE_KERNELS")
    monkeypatch.setattr(loaded, "find_spec", lambda name: None)
    assert not loaded.uses_triton("cuda")
    assert with_triton.startswith("triton ")


def test_an_engine_compares_the_kernels_with_torch_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    layout = KVLayout([LayerAttention(2, 1, 16)] * 2, 16)
    cache = torch.zeros(layout.shape(2), dtype=torch.bfloat16, device=DEVICE)
    assert isinstance(assembly_runner.make_attention(cache, layout), TritonAttention if DEVICE == "cuda" else object)
    monkeypatch.setattr(assembly_runner, "uses_triton", lambda device: device == DEVICE)
    with caplog.at_level("INFO"):
        assert isinstance(assembly_runner.make_attention(cache, layout), TritonAttention)
    assert "attention: triton" in caplog.text
    assert not cache.any()

    monkeypatch.setattr(TritonAttention, "attend", lambda *given: torch.ones_like(given[2]))
    with pytest.raises(ValueError, match=r"differs by .* QUIRE_KERNELS=none"):
        assembly_runner.make_attention(cache, layout)

    def fail(*args: Any, **more: Any) -> None:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(TritonAttention, "attend", fail)
    with pytest.raises(ValueError, match="no C compiler; set QUIRE_KERNELS=none"):
        assembly_runner.make_attention(cache, layout)
    monkeypatch.undo()
    monkeypatch.setattr(assembly_runner, "uses_triton", lambda device: device == DEVICE)
    monkeypatch.setattr(on_triton, "gate", lambda x: x[:, ::2])
    with pytest.raises(ValueError, match=r"kernel for gate differs by .* QUIRE_KERNELS=none"):
        assembly_runner.make_attention(cache, layout)
