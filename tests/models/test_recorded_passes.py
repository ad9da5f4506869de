"""Recorded passes equal the modules bit by bit; models that cannot be recorded are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBatch, KVLayout
from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import PassMemory, PassRecorder
from quire.loading import load_model, resolve_model
from quire.models.base import CausalLM
from quire.models.linear.panel_weight import panel_kernels
from quire.models.recorded_passes import MAX_TOKENS
from quire.models.stages import PassLayer, ServableStage

pytestmark = pytest.mark.skipif(load_kernels().functions is None, reason="there are no kernels")

multiplies_floats = panel_kernels(np.dtype(np.float32)) is not None
needs_float_kernels = pytest.mark.skipif(
    not multiplies_floats, reason="at this kernel level torch multiplies, whose passes are not recorded"
)


class Steps:
    """A model over its own cache, one block per sequence."""

    def __init__(self, model: str = "random:tiny", **config: str) -> None:
        self.model = load_model(resolve_model(model), use_tqdm=False, **config)
        self.layout = KVLayout(self.model.attention_layers(), 16)
        self.cache = np.zeros(self.layout.shape(MAX_TOKENS + 2), self.model.dtype)
        functions = load_kernels().functions
        assert functions is not None
        self.attention = CpuAttention(self.cache, self.layout, functions)

    def step(self, lens: list[tuple[int, int]], seed: int = 0) -> np.ndarray:
        """Return hidden states of sequences of (cached length, new tokens)."""
        query_lens = np.array([new for _, new in lens])
        starts = np.array([length for length, _ in lens])
        positions = np.concatenate([length + np.arange(new) for length, new in lens])
        blocks = np.repeat(np.arange(len(lens)) + 1, query_lens)
        self.attention.plan(
            AttentionBatch(
                query_start_loc=np.concatenate(([0], np.cumsum(query_lens))),
                seq_lens=starts + query_lens,
                block_tables=np.arange(1, len(lens) + 1, dtype=np.int32)[:, None],
                slot_mapping=blocks * 16 + positions,
            )
        )
        ids = np.random.default_rng(seed).integers(self.model.config.vocab_size, size=len(positions))
        return self.model(ids, positions, self.attention.attend)


def calls(model: CausalLM) -> int:
    return sum(len(each.calls) for each in model.recorded_passes.values())


def fresh(steps: Steps, lens: list[tuple[int, int]], seed: int = 0) -> np.ndarray:
    """As `step`, but by the modules, over the same cache."""
    steps.model._passes = type(steps.model._passes)()
    return steps.step(lens, seed)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("random:tiny", {"dtype": "float32"}),
        ("random:tiny", {"dtype": "bfloat16", "weights": "plain"}),
        ("random:tiny", {"dtype": "bfloat16", "weights": "packed12"}),
        ("random:tiny", {"dtype": "bfloat16", "quantization": "int8"}),
        ("random:tiny", {"dtype": "float32", "quantization": "int4"}),
        pytest.param("random:smollm2-135m", {"dtype": "bfloat16"}, marks=pytest.mark.slow),
        ("random:tiny-moe", {"dtype": "float32"}),
        ("random:tiny-moe", {"dtype": "bfloat16", "quantization": "int4"}),
        ("random:tiny-moe", {"dtype": "bfloat16", "weights": "packed12"}),
        ("gpt-oss-window", {"dtype": "float32"}),
        ("gpt-oss-window", {"dtype": "bfloat16", "quantization": "int8"}),
        ("deepseek3", {"dtype": "float32"}),
        ("deepseek2", {"dtype": "bfloat16"}),
        ("glm4_moe_lite", {"dtype": "bfloat16", "quantization": "int8"}),
        ("qwen3_5", {"dtype": "float32"}),
        ("qwen3_5-moe", {"dtype": "bfloat16", "quantization": "int4"}),
        ("qwen3_next", {"dtype": "bfloat16"}),
        ("lfm2-biases", {"dtype": "float32"}),
        ("lfm2-moe", {"dtype": "bfloat16"}),
        ("granite4", {"dtype": "bfloat16"}),
        ("granite4-moe", {"dtype": "float32", "quantization": "int8"}),
    ],
)
def test_a_recorded_pass_computes_what_the_modules_do_to_the_bit(
    model: str, config: dict[str, str], tmp_path: Path
) -> None:
    from checkpoints import make_checkpoint  # a test's process imports this module, but no torch

    steps = Steps(model if ":" in model else str(make_checkpoint(model, tmp_path)), **config)
    full = [(i % 15, 1) for i in range(MAX_TOKENS)]
    for lens in ([(0, 1)], [(3, 1), (9, 1), (0, 1)], [(2, 1), (0, 5), (7, 1)], full):
        before, expected = steps.cache.copy(), []
        for seed in range(3):
            steps.cache[...] = before  # a step goes on from states
            expected.append(fresh(steps, lens, seed))
        cache = steps.cache.copy()
        steps.step(lens, 3)
        if multiplies_floats or "quantization" in config:
            assert calls(steps.model)
        for seed, each in enumerate(expected):
            steps.cache[...] = before
            assert np.array_equal(steps.step(lens, seed), each)
        assert np.array_equal(steps.cache.view(np.uint8), cache.view(np.uint8))  # NaN too, as parts of float32


@needs_float_kernels
def test_passes_share_memory_and_a_result_outlives_the_next() -> None:
    steps = Steps("random:tiny", dtype="float32")
    first = steps.step([(0, 1)] * 2)
    again = steps.step([(0, 1)] * 2)
    copy = again.copy()
    for count in range(1, MAX_TOKENS + 1):
        steps.step([(0, 1)] * count, seed=count)
    assert np.array_equal(first, copy)
    assert np.array_equal(again, copy)
    assert len(steps.model.recorded_passes.values()) == MAX_TOKENS
    assert steps.model.recorded_passes.num_bytes <= 4 * 2**20


def test_a_longer_batch_is_not_recorded() -> None:
    steps = Steps("random:tiny", dtype="float32")
    steps.step([(0, 1)] * (MAX_TOKENS + 1))
    assert not steps.model.recorded_passes.values()


def test_a_pass_in_which_numpy_computes_is_not_recorded() -> None:
    class Twice:
        def add_to(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
            return y * 2

    steps = Steps("random:tiny", dtype="float32")
    steps.model.layers[1].self_attn.o_proj.adapter = Twice()
    for seed in range(3):
        assert np.array_equal(steps.step([(0, 1)], seed), fresh(steps, [(0, 1)], seed))
    assert not steps.model.recorded_passes.values()


@needs_float_kernels
def test_each_stage_has_its_own_and_identities_leave_what_they_pass_alone() -> None:
    steps = Steps("random:tiny", dtype="float32")
    layers = list(steps.model.layers)
    stages = [
        ServableStage(1, [layers[0], PassLayer(), PassLayer(), layers[3]]),
        ServableStage(2, [layers[0], layers[1], PassLayer(), layers[3]]),
        ServableStage(3, layers),
    ]
    expected = []
    for stage in stages:
        steps.model.switch_to(stage)
        expected.append(steps.step([(0, 1)] * 3))
    assert not np.array_equal(expected[0], expected[1])
    for _ in range(2):
        for stage, each in zip(stages, expected, strict=True):
            steps.model.switch_to(stage)
            assert np.array_equal(steps.step([(0, 1)] * 3), each)
    assert [len(stage.recorded_passes.values()) for stage in stages] == [1, 1, 1]


def test_another_cache_is_read_by_passes_of_its_own() -> None:
    first, second = Steps("random:tiny", dtype="float32"), Steps("random:tiny", dtype="float32")
    second.model = first.model
    expected = first.step([(0, 1)])
    for steps in (second, first, second):
        assert np.array_equal(steps.step([(0, 1)]), expected)
        assert steps.cache[1].any()


def test_layers_take_turns_with_two_parts_of_memory() -> None:
    memory = PassMemory()
    memory.begin_pass()
    given = memory.allocate((4,), np.dtype(np.float32))
    places = []
    for takes in (True, True, False, False, True, True):
        memory.begin_layer()
        if takes:
            places.append(memory.allocate((4,), np.dtype(np.float32)).ctypes.data)
    assert places[0] == places[2] != places[1] == places[3]
    assert given.ctypes.data not in places
    assert all(place % 64 == 0 for place in places)
    assert memory.allocate((2**20,), np.dtype(np.float32)).ctypes.data not in places  # a chunk of its own


@needs_float_kernels
def test_recording_imports_nothing_that_the_first_token_would_wait_for() -> None:
    script = (
        "import sys\n"
        "from models.test_recorded_passes import Steps\n"
        "steps = Steps()\n"
        "before = set(sys.modules)\n"
        "steps.step([(5, 1)])\n"
        "assert steps.model.recorded_passes.values(), 'it was not recorded'\n"
        "assert len(set(sys.modules) - before) < 20, len(set(sys.modules) - before)\n"
    )
    paths = [str(Path(__file__).parents[1]), *sys.path]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{script}"], check=True)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + 1,
        lambda x: np.exp(x),
        lambda x: x.copy(),
        lambda x: x.astype(np.float64),
        lambda x: x[np.array([0, 1])],
        lambda x: x.T.reshape(-1),
        lambda x: x.sum(),
        lambda x: np.concatenate((x, x)),
        lambda x: x.__setitem__(0, 1),
        lambda x: np.add(x, x, out=x),
    ],
)  # fmt: skip
def test_whatever_numpy_does_to_a_recorded_array_is_noticed(compute: Callable[[np.ndarray], object]) -> None:
    with PassRecorder(PassMemory()) as recorder:
        x = recorder.memory.allocate((2, 3), np.dtype(np.float32))
        x.reshape(3, 2)[1:, None].view(np.int32)[..., 0]
        assert recorder.other is None
        compute(x)
        assert recorder.other is not None
