"""Layers with states by Triton's kernels, in its interpreter: as in numpy, and the same bits however steps are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from models.test_states import CONFIG, KINDS, SIZES, exact, make_inputs, make_layer
from parameters import quick
from quire.attention.block_records import STATES
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, LayerState
from quire.attention.states import LayerStates, StatePlan
from quire.attention.triton_attention import TritonAttention
from quire.models.parallel import ALONE, ModelSplit
from quire.models.states import on_triton, triton_check
from quire.models.states.config import ConvConfig, DeltaConfig, MambaConfig, StateConfig
from quire.ops.arrays import as_tensor, torch_dtype, widen
from quire.runner.kv_cache import RecordCache

BLOCK, NUM_IDS, NUM_DRAFTS = 4, 24, 3
SMALL: list[StateConfig] = [
    DeltaConfig(2, 4, 16, 32, is_interleaved=True), MambaConfig(2, 2, 16, 32, has_conv_bias=True), ConvConfig(48, True)
]  # fmt: skip
each_kind = pytest.mark.parametrize("size", SMALL, ids=str)
Part = tuple[int, int, int, list[int]]  #: text, first token, token after the last, blocks


@pytest.fixture(autouse=True)
def _fewer_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_triton, "_COLUMNS", 16)


class Worlds:
    """A layer and its cache by our kernels, and the same ones in numpy. Unwritten memory is NaN."""

    def __init__(self, size: StateConfig, dtype: str) -> None:
        self.layer = make_layer("none", dtype, size)
        config = replace(CONFIG, state=size)
        self.net = KINDS[type(size)][0](config, ModelSplit(config, ALONE), 0, dtype=torch_dtype(dtype), device="cpu")
        for own, other in zip(self.net.modules(), self.layer.net.modules(), strict=True):
            for (_, tensor), (_, array) in zip(own.named_parameters(), other.named_parameters(), strict=True):
                tensor.copy_(as_tensor(array))
        self.num_floats, itemsize = size.num_floats(), torch_dtype(dtype).itemsize
        layout = KVLayout([LayerAttention(2, 1, 16), *[LayerState(self.num_floats, itemsize)] * 2], BLOCK)
        self.cache = RecordCache(NUM_IDS + NUM_DRAFTS, 15 * layout.num_records, layout, torch_dtype(dtype), "cpu:0")
        self.cache.records._free.reverse()
        self.cache.blocks.fill_(float("nan"))
        self.attention = TritonAttention(self.cache.blocks, layout, self.cache.records)
        self.expected = np.full((NUM_IDS + NUM_DRAFTS, self.num_floats), np.nan, np.float32)

    def step(
        self, texts: Sequence[list[np.ndarray]], parts: Sequence[Part], num_drafts: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Compute parts of texts as one step. Returns the outputs of both."""
        tables = np.zeros((len(parts), max(len(table) for *_, table in parts)), np.int32)
        for row, (*_, table) in zip(tables, parts, strict=True):
            row[: len(table)] = table
        rows = np.cumsum([0, *(end - first for _, first, end, _ in parts)])
        drafts = None if num_drafts is None else np.array(num_drafts)
        lens = np.array([end for _, _, end, _ in parts])
        batch = AttentionBatch(rows, lens, tables, np.full(rows[-1], -1), drafts, NUM_IDS)
        inputs = [
            np.concatenate([texts[text][which][first:end] for text, first, end, _ in parts])
            for which in range(len(texts[0]))
        ]
        self.attention.plan(batch)
        given = [*map(as_tensor, inputs), None]
        found = self.attention.attend(2, given[0], given[1], None, self.net._rule)
        plan = StatePlan(self.expected.strides[0], BLOCK)
        plan.plan(batch)
        own = [*inputs, None] if isinstance(self.layer.size, MambaConfig) else inputs
        return found, self.layer.net._compute(*own, LayerStates(self.expected, 0, self.num_floats, plan), None)

    def state(self, block: int) -> np.ndarray:
        """Return the second layer's state in a block."""
        records = self.cache.records.of[block, STATES]
        assert (records >= 0).all()
        values = (
            self.cache.blocks[records].view(torch.float32).reshape(-1).numpy()[self.num_floats :][: self.num_floats]
        )
        if not isinstance(size := self.layer.size, MambaConfig):
            return values
        inputs, matrices = np.split(values, [3 * size.num_channels])  # values, keys and queries
        ends = size.num_value_heads * size.value_dim + np.array([0, size.num_key_heads * size.key_dim])
        return np.concatenate((np.concatenate(np.split(inputs.reshape(3, -1), ends, 1)[::-1], 1).ravel(), matrices))

    def check(self, found: torch.Tensor, expected: np.ndarray) -> None:
        tolerance = 2e-6 if found.dtype == torch.float32 else 2**-7
        assert np.abs(widen(found).numpy() - widen(expected)).max() < tolerance * np.abs(widen(expected)).max()
        for block in np.flatnonzero(self.cache.records.of[:, 1] >= 0).tolist():
            assert np.abs(self.state(block) - self.expected[block]).max() < 5e-6 * np.abs(self.expected[block]).max()


CASES = [(size, dtype) for size in (*SMALL, *SIZES) for dtype in ("float32", "bfloat16")]


@pytest.mark.parametrize(("size", "dtype"), quick([(each, "float32") for each in SMALL], CASES))
def test_outputs_and_states_are_those_of_numpy(size: StateConfig, dtype: str) -> None:
    """Sequences are new or continued, and have several runs each, one of which begins amid a block."""
    worlds = Worlds(size, dtype)
    texts = [make_inputs(worlds.layer, count, seed) for seed, count in enumerate((11, 6))]
    worlds.check(*worlds.step(texts, [(0, 0, 2, [0]), (1, 0, 1, [3])]))
    worlds.check(*worlds.step(texts, [(1, 1, 6, [3, 7]), (0, 2, 11, [0, 5, 6])]))


@each_kind
def test_a_sequence_goes_on_from_a_state_that_the_same_step_writes(size: StateConfig) -> None:
    worlds = Worlds(size, "float32")
    text = make_inputs(worlds.layer, 7)
    out, _ = worlds.step([text], [(0, 0, 5, [1, 0]), (0, 4, 7, [1, 2]), (0, 4, 5, [1, 3])])
    assert len(worlds.attention._states.groups) == 2  # type: ignore[union-attr]
    assert not worlds.attention.is_recordable
    expected = exact(worlds.layer, text)
    assert np.abs(out.numpy() - expected[[0, 1, 2, 3, 4, 4, 5, 6, 4]]).max() < 5e-6 * np.abs(expected).max()


@each_kind
def test_states_after_drafts_are_left_in_their_blocks(size: StateConfig) -> None:
    worlds = Worlds(size, "float32")
    text = make_inputs(worlds.layer, 7)
    worlds.step([text], [(0, 0, 3, [1])])
    worlds.check(*worlds.step([text, text], [(0, 3, 7, [1, 0])], [NUM_DRAFTS]))
    assert (worlds.cache.records.of[[1, *range(NUM_IDS, NUM_IDS + NUM_DRAFTS)], 1] >= 0).all()
    assert worlds.cache.records.of[0, 1] < 0
    worlds.cache.copy_states([(NUM_IDS + 1, 0)])
    assert np.array_equal(worlds.state(0), worlds.state(NUM_IDS + 1))


@each_kind
def test_the_bits_do_not_depend_on_steps_and_neighbours(size: StateConfig) -> None:
    texts = [make_inputs(make_layer("none", "float32", size), 9, seed) for seed in range(2)]
    whole, cut = Worlds(size, "float32"), Worlds(size, "float32")
    expected, _ = whole.step(texts, [(0, 0, 9, [0, 1, 2])])
    found = [
        cut.step(texts, [(1, 0, 6, [6, 7]), (0, 0, 1, [3])])[0][6:],
        cut.step(texts, [(0, 1, 7, [3, 4])])[0],
        cut.step(texts, [(0, 7, 9, [3, 4, 5]), (1, 6, 7, [6, 7])])[0][:2],
    ]
    assert torch.equal(torch.cat(found), expected)
    assert np.array_equal(cut.state(5), whole.state(2))


def test_a_kernel_that_differs_is_noticed_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = Worlds(SMALL[1], "float32")
    worlds.net.attention_layers = lambda: [LayerState(worlds.num_floats, 4)]
    config = replace(CONFIG, state=SMALL[1])
    model: Any = type("Model", (), {"config": config, "split": ModelSplit(config, ALONE), "dtype": torch.float32,
        "device": "cpu:0", "modules": worlds.net.modules, "attention_layers": worlds.net.attention_layers})  # fmt: skip
    triton_check.check_states(model)
    monkeypatch.setattr(triton_check, "_TOLERANCE", {"float32": 1e-12})
    with pytest.raises(ValueError, match=r"states differs by.*use device cpu"):
        triton_check.check_states(model)
