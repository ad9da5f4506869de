"""Layers with states: as in float64, and the same bits however tokens, sequences and threads are divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from checkpoints import HYBRIDS, make_checkpoint
from kernel_levels import LEVELS, library_of
from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBatch, KVLayout
from quire.attention.states import LayerStates, StatePlan
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.loading.presets import preset_config
from quire.models.parallel import ALONE, ModelSplit
from quire.models.registry import read_model_config
from quire.models.states.config import ConvConfig, DeltaConfig, MambaConfig, StateConfig
from quire.models.states.gated_delta import GatedDeltaNet
from quire.models.states.mamba import Mamba2
from quire.models.states.short_conv import ShortConv
from quire.ops.arrays import numpy_dtype, widen
from quire.progressive.hidden_states import WholeText

CONFIG = read_model_config(preset_config("random:tiny"))
SIZES: list[StateConfig] = [
    DeltaConfig(2, 4, 32, 64), DeltaConfig(3, 3, 16, 32), DeltaConfig(1, 2, 128, 128),
    DeltaConfig(2, 4, 32, 64, is_interleaved=True), MambaConfig(2, 4, 32, 64, has_conv_bias=True),
    MambaConfig(1, 3, 16, 32), MambaConfig(1, 24, 32, 32), ConvConfig(16), ConvConfig(208, has_bias=True),
]  # fmt: skip
KINDS: dict[type[StateConfig], tuple[Any, str]] = {
    DeltaConfig: (GatedDeltaNet, "gated_delta"), MambaConfig: (Mamba2, "mamba2"), ConvConfig: (ShortConv, "short_conv")
}  # fmt: skip
each_size = pytest.mark.parametrize("size", SIZES, ids=str)
each_kind = pytest.mark.parametrize("size", [SIZES[0], SIZES[4], SIZES[6], SIZES[-1]], ids=str)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
each_level = pytest.mark.parametrize("level", [*LEVELS, "none"])

Run = tuple[int, int, int, int]
Inputs = list[np.ndarray]


class Layer(NamedTuple):
    net: Any
    function: Any  #: None for numpy
    size: StateConfig

    def compute(self, inputs: Inputs, memory: np.ndarray, runs: Sequence[Run], threads: int = 2) -> np.ndarray:
        """Compute a step over `memory`, [num_blocks, num_floats]."""
        plan = StatePlan(memory.strides[0], 16)
        plan._set(list(runs))
        plan._struct.num_threads = threads
        inputs = [*inputs, None] if isinstance(self.size, MambaConfig) else inputs  # no gates of their own
        return self.net._compute(*inputs, LayerStates(memory, 0, memory.shape[1], plan), self.function)

    def blocks(self, count: int) -> np.ndarray:
        memory = np.random.default_rng(5).standard_normal((count, self.size.num_floats()), np.float32)
        return memory * np.float32(0.1)


def make_layer(level: str, dtype: str, size: StateConfig) -> Layer:
    config = replace(CONFIG, state=size)
    net_class, name = KINDS[type(size)]
    net = net_class(config, ModelSplit(config, ALONE), 0, dtype=numpy_dtype(dtype), device="cpu")
    generator = np.random.default_rng(0)
    for module in net.modules():
        for _, array in module.named_parameters():
            array[...] = generator.standard_normal(array.shape) * 0.5
    if level == "none":
        return Layer(net, None, size)
    function = library_of(level)[f"quire_{name}_{dtype}"]
    function.restype = None
    return Layer(net, function, size)


def make_inputs(layer: Layer, count: int, seed: int = 1) -> Inputs:
    size, generator = layer.size, np.random.default_rng(seed)
    if isinstance(size, DeltaConfig):
        widths = [size.num_channels + size.num_value_heads * size.value_dim, 2 * size.num_value_heads]
    elif isinstance(size, MambaConfig):
        widths = [size.num_channels + size.num_value_heads * (size.value_dim + 1)]
    else:
        widths = [3 * size.num_channels]
    dtype = layer.net.out_proj.weight.dtype
    return [generator.standard_normal((count, width), np.float32).astype(dtype) for width in widths]


def part(inputs: Inputs, first: int, end: int) -> Inputs:
    return [each[first:end] for each in inputs]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def wide(x: np.ndarray) -> np.ndarray:
    return widen(x).astype(np.float64)


def convolve(given: np.ndarray, weight: np.ndarray) -> np.ndarray:
    taps = weight.shape[2]
    padded = np.concatenate((np.zeros((taps - 1, given.shape[1])), given))
    return sum(padded[tap : tap + len(given)] * wide(weight)[:, 0, tap] for tap in range(taps))


def exact(layer: Layer, inputs: Inputs) -> np.ndarray:
    """Return a new sequence's output in float64."""
    given = [wide(each) for each in inputs]
    if isinstance(layer.size, DeltaConfig):
        return exact_delta(layer.net, layer.size, *given)
    if isinstance(layer.size, MambaConfig):
        return exact_mamba(layer.net, layer.size, *given)
    b, c, x = np.split(given[0], 3, -1)
    return c * (convolve(b * x, layer.net.conv.weight) + (wide(layer.net.conv.bias) if layer.size.has_bias else 0))


def exact_delta(net: Any, delta: DeltaConfig, x: np.ndarray, gates: np.ndarray) -> np.ndarray:
    keys, groups, count = delta.num_key_heads, delta.num_value_heads // delta.num_key_heads, len(x)
    dims = [delta.key_dim, delta.key_dim, groups * delta.value_dim, groups * delta.value_dim]
    if delta.is_interleaved:
        q, k, v, z = np.split(x.reshape(count, keys, -1), np.cumsum(dims)[:-1], -1)
        b, a = (each.reshape(count, -1) for each in np.split(gates.reshape(count, keys, -1), 2, -1))
    else:
        q, k, v, z = np.split(x, np.cumsum([keys * each for each in dims])[:-1], -1)
        b, a = np.split(gates, 2, -1)
    given = np.concatenate([each.reshape(count, -1) for each in (q, k, v)], -1)
    a_log, dt_bias, norm = map(wide, (net.A_log, net.dt_bias, net.norm.weight))
    mixed = convolve(given, net.conv1d.weight)
    mixed = mixed * sigmoid(mixed)
    q, k, v = np.split(mixed, [keys * delta.key_dim, 2 * keys * delta.key_dim], -1)
    q, k = (each.reshape(count, keys, -1).repeat(groups, 1) for each in (q, k))
    q, k = (each / np.sqrt((each**2).sum(-1, keepdims=True) + 1e-6) for each in (q, k))
    v, z = (each.reshape(count, delta.num_value_heads, -1) for each in (v, z))
    out, state = np.zeros_like(v), np.zeros((delta.num_value_heads, delta.key_dim, delta.value_dim))
    for i in range(count):
        state *= np.exp(-np.exp(a_log) * np.log1p(np.exp(a[i] + dt_bias)))[:, None, None]
        change = sigmoid(b[i])[:, None] * (v[i] - np.einsum("hk,hkv->hv", k[i], state))
        state += k[i][:, :, None] * change[:, None]
        out[i] = np.einsum("hk,hkv->hv", q[i], state) / delta.key_dim**0.5
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + net.norm.eps) * norm * z * sigmoid(z)
    return out.reshape(count, -1)


def exact_mamba(net: Any, size: MambaConfig, x: np.ndarray) -> np.ndarray:
    count, values, keys = len(x), size.num_value_heads * size.value_dim, size.num_key_heads * size.key_dim
    z, given, a = np.split(x, [values, values + size.num_channels], -1)
    mixed = convolve(given, net.conv1d.weight) + (wide(net.conv1d.bias) if size.has_conv_bias else 0)
    v, k, q = np.split(mixed * sigmoid(mixed), [values, values + keys], -1)
    groups = size.num_value_heads // size.num_key_heads
    q, k = (each.reshape(count, size.num_key_heads, -1).repeat(groups, 1) for each in (q, k))
    v, step = v.reshape(count, size.num_value_heads, -1), np.log1p(np.exp(a + wide(net.dt_bias)))
    out, state = np.zeros_like(v), np.zeros((size.num_value_heads, size.key_dim, size.value_dim))
    for i in range(count):
        state *= np.exp(-np.exp(wide(net.A_log)) * step[i])[:, None, None]
        state += k[i][:, :, None] * (v[i] * step[i][:, None])[:, None]
        out[i] = np.einsum("hk,hkv->hv", q[i], state) + v[i] * wide(net.D)[:, None]
    y = (out.reshape(count, -1) * z * sigmoid(z)).reshape(count, size.num_key_heads, -1)
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + net.norm.eps)
    return y.reshape(count, -1) * wide(net.norm.weight)


@each_size
@each_dtype
@each_level
def test_it_is_the_rule(level: str, dtype: str, size: StateConfig) -> None:
    layer = make_layer(level, dtype, size)
    inputs = make_inputs(layer, 70)
    found, expected = layer.compute(inputs, layer.blocks(1), [(0, 70, -1, 0)]), exact(layer, inputs)
    rounding = 2**-7 if isinstance(size, MambaConfig) else 2**-8  # Mamba-2 also rounds outputs before their norm
    assert np.abs(widen(found) - expected).max() < (5e-6 if dtype == "float32" else rounding) * np.abs(expected).max()


def cut(count: int, ends: Sequence[int], blocks: Sequence[int]) -> list[Run]:
    """Return the runs of one sequence that end at rows, and leave states in blocks."""
    return [
        (first, end, source, target)
        for first, end, source, target in zip([0, *ends], [*ends, count], [-1, *blocks], blocks, strict=False)
    ]


@each_kind
@each_dtype
@each_level
def test_the_bits_do_not_depend_on_runs_steps_sequences_and_threads(level: str, dtype: str, size: StateConfig) -> None:
    layer = make_layer(level, dtype, size)
    texts = [make_inputs(layer, count, seed) for count, seed in ((70, 1), (33, 2), (1, 3), (18, 4))]
    alone = []
    for text in texts:
        memory = layer.blocks(1)
        alone.append((layer.compute(text, memory, [(0, len(text[0]), -1, 0)], threads=1), memory[0]))
    text = texts[0]
    for ends in ([16], [1, 2, 3, 4, 21, 69], [35, 48, 64]):
        memory = layer.blocks(9)
        last = len(ends)
        out = layer.compute(text, memory, cut(70, ends, range(last + 1)))
        assert np.array_equal(out, alone[0][0])
        assert np.array_equal(memory[last], alone[0][1])
        for at, end in enumerate(ends):  # the states between are what shorter texts leave
            shorter = layer.blocks(1)
            layer.compute(part(text, 0, end), shorter, [(0, end, -1, 0)])
            assert np.array_equal(memory[at], shorter[0])
    memory, parts = layer.blocks(2), []
    for first, end in zip([0, 1, 2, 17, 40], [1, 2, 17, 40, 70], strict=True):  # steps, mostly in place
        runs = [(0, end - first, -1 if not first else 0, 0)] if end < 70 else [(0, 30, 0, 1)]
        parts.append(layer.compute(part(text, first, end), memory, runs))
    assert np.array_equal(np.concatenate(parts), alone[0][0])
    assert np.array_equal(memory[1], alone[0][1])
    rows, together = [0, 70, 103, 104, 122], [np.concatenate(each) for each in zip(*texts, strict=True)]
    for threads in (1, 2, 3, 7):
        memory = layer.blocks(8)
        runs = [(0, 64, -1, 6), (64, 70, 6, 0), *((rows[i], rows[i + 1], -1, i) for i in (1, 2, 3))]
        out = layer.compute(together, memory, runs, threads)
        for i, (expected, state) in enumerate(alone):
            assert np.array_equal(out[rows[i] : rows[i + 1]], expected)
            assert np.array_equal(memory[i], state)


@each_kind
@each_level
def test_a_run_changes_only_its_block(level: str, size: StateConfig) -> None:
    layer = make_layer(level, "float32", size)
    inputs = make_inputs(layer, 20)
    memory, before = layer.blocks(5), layer.blocks(5)
    layer.compute(inputs, memory, [(0, 9, 1, 3), (9, 20, 1, 4)])  # two that go on from one state
    assert [bool((memory[i] != before[i]).any()) for i in range(5)] == [False, False, False, True, True]
    again = layer.blocks(2)
    layer.compute(part(inputs, 9, 20), again, [(0, 11, 1, 1)])
    assert np.array_equal(again[1], memory[4])


@each_kind
@each_level
@pytest.mark.parametrize("between", [0, 2])
def test_a_sequence_may_go_on_from_a_state_that_another_leaves_in_the_same_step(
    level: str, between: int, size: StateConfig
) -> None:
    layer = make_layer(level, "float32", size)
    inputs = make_inputs(layer, 40 + between)
    others = [(32, 32 + between, 5, 6)] if between else []
    memory, apart = layer.blocks(7), layer.blocks(7)
    runs = [(0, 16, -1, 0), (16, 32, 0, 1), *others, (32 + between, 40 + between, 0, 2)]
    out = layer.compute(inputs, memory, runs)
    expected = [
        layer.compute(part(inputs, first, end), apart, [(0, end - first, source, target)])
        for first, end, source, target in runs
    ]
    assert np.array_equal(out, np.concatenate(expected))
    assert np.array_equal(memory, apart)


@each_kind
@each_level
def test_a_state_of_one_level_goes_on_at_another(level: str, size: StateConfig) -> None:
    layer, other = make_layer(level, "float32", size), make_layer("none", "float32", size)
    inputs = make_inputs(layer, 40)
    memory = layer.blocks(1)
    parts = [each.compute(part(inputs, first, first + 20), memory, [(0, 20, source, 0)])
             for each, first, source in ((other, 0, -1), (layer, 20, 0))]  # fmt: skip
    np.testing.assert_allclose(np.concatenate(parts), exact(layer, inputs), rtol=0, atol=2e-5)


@pytest.mark.skipif(load_kernels().functions is None, reason="there are no kernels")
@pytest.mark.parametrize("name", HYBRIDS)
def test_steps_over_blocks_give_what_the_whole_text_does(name: str, tmp_path: Path) -> None:
    model, library = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False), load_kernels()
    layers, ids = model.attention_layers(), np.random.default_rng(3).integers(256, size=90)
    expected = model.compute_logits(model(ids, np.arange(90), WholeText(layers).attend))
    layout, tables = KVLayout(layers, 16), np.array([[5, 2, 7, 1, 3, 6]], np.int32)
    cache = np.full(layout.shape(9), np.nan, np.float32)
    assert library.functions is not None
    attention, first, wrong = CpuAttention(cache, layout, library.functions), 0, []
    for end in (1, 2, 16, 17, 40, 80, *range(81, 91)):
        at = np.arange(first, end)
        slots = tables[0, at // 16] * np.int64(16) + at % 16
        attention.plan(AttentionBatch(np.array([0, len(at)]), np.array([end]), tables, slots))
        if end > 80:  # from another state
            kept = cache.copy()
            for state in attention._states._of_layer.values():
                state.memory[tables[0, (first - 1) // 16]] *= np.float32(0.5)
            wrong.append(model.compute_logits(model(ids[first:end], at, attention.attend)).argmax(-1)[0])
            cache[...] = kept
        logits = model.compute_logits(model(ids[first:end], at, attention.attend))
        np.testing.assert_allclose(logits, expected[first:end], rtol=0, atol=2e-3)
        assert np.array_equal(logits.argmax(-1), expected[first:end].argmax(-1))
        first = end
    assert (np.array(wrong) != expected[80:].argmax(-1)).mean() >= 0.8, "states hardly matter"
