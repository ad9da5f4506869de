"""Weights in 12 bits give the bits of plain ones, in products, rows and whole models."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from checkpoints import make_checkpoint
from engine.harness import PROMPTS, greedy_params, make_llm, random_ids
from kernel_levels import LEVELS, library_of
from parameters import quick
from quire.config import EngineConfig
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.loading.layer_loader import LayerLoader
from quire.loading.modules.units import memory_of
from quire.models.base import CausalLM
from quire.models.latent_attention import HeadWeights
from quire.models.linear import panel_weight
from quire.models.linear.layer import WeightLayer
from quire.models.linear.panel_weight import COMPACT_SHARE, CompactWeight, PanelWeight, pack_panels
from quire.ops.arrays import BFLOAT16, as_tensor
from ranks import load, logits_of, on_ranks

needs_kernels = pytest.mark.skipif(load_kernels().functions is None, reason="there are no kernels")
ROWS = (*range(1, 41), 70, 300)
#: Borders of the sliced depth, the parts of exceptions, the units and the panels.
SHAPES = [(32, 64), (33, 66), (7, 3), (100, 129), (96, 1030), (40, 4864)]


@pytest.fixture(params=LEVELS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library_of(request.param)


def words(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 50).astype(BFLOAT16)


def with_exceptions(weight: np.ndarray, *, finite: bool = True) -> np.ndarray:
    """Zeros, denormals, tiny and large numbers, maybe infinities and NaN, at the borders and anywhere."""
    values = [0, 0x8000, 1, 0x807F, 0x0080, 0x0100, 0x5F80, 0xDF81, *(() if finite else (0x7F80, 0xFF80, 0x7FC1))]
    generator, flat = np.random.default_rng(1), words(weight).reshape(-1)
    flat[generator.integers(flat.size, size=1 + flat.size // 300)] = 0x5D12
    flat[generator.integers(flat.size, size=1 + flat.size // 300)] = generator.choice(values, 1 + flat.size // 300)
    flat[[0, -1]] = values[1], values[3]
    weight[len(weight) // 2] = 0
    return weight


def assert_same_products(
    plain: PanelWeight, compact: PanelWeight, ups: tuple[PanelWeight, PanelWeight], num_rows: int, seed: int = 2
) -> None:
    x = normal(num_rows, plain.in_features, seed=seed)
    bias = normal(plain.out_features, seed=3)
    for activation in ("none", "silu"):
        expected = plain.product(x, bias, activation)
        assert np.array_equal(words(compact.product(x, bias, activation)), words(expected))
    expected = plain.gated_product(x, bias, ups[0], None)
    for weight, up in ((compact, ups[1]), (plain, ups[1]), (compact, ups[0])):
        assert np.array_equal(words(weight.gated_product(x, bias, up, None)), words(expected))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_products_and_rows_have_the_bits_of_plain_weights(
    library: ctypes.CDLL, shape: tuple[int, int], num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_weight, "num_threads", lambda: num_threads)
    monkeypatch.setattr(panel_weight, "SERIAL_PRODUCTS", 0)
    weight, up = with_exceptions(normal(*shape)), normal(*shape, seed=5)
    plain, compact = PanelWeight(weight.copy(), library), CompactWeight(weight, library)
    ups = PanelWeight(up.copy(), library), CompactWeight(up, library)
    for num_rows in ROWS if weight.size < 10_000 else ROWS[::5]:
        assert_same_products(plain, compact, ups, num_rows)
    assert np.array_equal(words(compact.rows(np.arange(shape[0]))), words(weight))
    ids = np.random.default_rng(0).integers(shape[0], size=50)
    assert np.array_equal(words(compact.rows(ids)), words(weight[ids]))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    rare=arrays.arrays(np.uint16, st.tuples(st.integers(1, 70), st.integers(1, 140))),
    share=st.sampled_from([0, 0.003, 0.05, 0.5, 1]),
    num_rows=st.integers(1, 30),
    seed=st.integers(0, 2**16),
)
def test_any_words_survive(library: ctypes.CDLL, rare: np.ndarray, share: float, num_rows: int, seed: int) -> None:
    """Infinities and NaN included, whose products' bits may be any NaN's."""
    generator = np.random.default_rng(seed)
    weight = normal(*rare.shape, seed=seed)
    np.copyto(words(weight), rare, where=generator.random(rare.shape) < share)
    plain, compact = PanelWeight(weight.copy(), library), CompactWeight(weight, library)
    assert np.array_equal(words(compact.rows(np.arange(len(weight)))), words(weight))
    x = normal(num_rows, weight.shape[1], seed=seed)
    expected, found = plain.product(x, None), compact.product(x, None)
    is_nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(found.astype(np.float32)), is_nan)
    assert np.array_equal(words(found)[~is_nan], words(expected)[~is_nan])


def test_a_compact_weight_takes_three_quarters_and_a_hopeless_one_stays_plain(library: ctypes.CDLL) -> None:
    weight = normal(256, 896)
    packed = pack_panels(weight, library, is_compact=True)
    assert isinstance(packed, CompactWeight)
    assert 0.75 < packed.num_bytes / weight.nbytes < COMPACT_SHARE + 0.01
    anything = np.random.default_rng(0).integers(2**16, size=(256, 896), dtype=np.uint16).view(BFLOAT16)
    assert type(pack_panels(anything.copy(), library, is_compact=True)) is PanelWeight
    assert type(pack_panels(normal(256, 896).astype(np.float32), library, is_compact=True)) is PanelWeight
    words(weight)[:32] = words(anything)[:32]  # some panels, of which one half may be usual
    mixed = CompactWeight(weight, library)
    assert np.array_equal(words(mixed.rows(np.arange(256))), words(weight))
    assert mixed.num_bytes < packed.num_bytes + weight.nbytes * 32 / 256


def test_pruned_weights_are_compact_too(library: ctypes.CDLL) -> None:
    weight = normal(64, 512)
    weight[np.random.default_rng(0).random(weight.shape) < 0.5] = 0
    packed = pack_panels(weight, library, is_compact=True)
    assert isinstance(packed, CompactWeight)
    assert np.array_equal(words(packed.rows(np.arange(64))), words(weight))


@pytest.mark.parametrize("level", ["generic", "avx2", "avx512bf16"])
def test_each_byte_matters(level: str) -> None:
    """A decoder that ignored a part of the memory would pass the tests above by chance only."""
    weight = normal(32, 64)
    packed = CompactWeight(weight, library_of(level))
    x = np.eye(64).astype(BFLOAT16)  # products are the weight's columns
    for at in range(packed._packed.size - 192, packed._packed.size):
        packed._packed[at] ^= 0x11
        assert not np.array_equal(words(packed.rows(np.arange(32))), words(weight)), at
        few = [packed.product(x[row : row + 2], None) for row in range(0, 64, 2)]
        for found in (packed.product(x, None), np.concatenate(few)):
            assert not np.array_equal(words(found), words(weight.T)), at
        packed._packed[at] ^= 0x11


@pytest.mark.parametrize("num_copied", [0, 8])
def test_heads_have_the_same_bits(library: ctypes.CDLL, num_copied: int) -> None:
    weight = normal(3, 128, 96)
    plain, compact = HeadWeights(weight, library), HeadWeights(weight, library, is_compact=True)
    assert compact.num_bytes < 0.85 * plain.num_bytes
    for num_rows in (1, 5, 40):
        x = normal(num_rows, 3, 96 + num_copied)
        assert np.array_equal(words(compact.product(x, num_copied)), words(plain.product(x, num_copied)))


# -- whole models -----------------------------------------------------------------------------------------------------


WHOLE_MODELS = ("llama", "llama-tied", "gpt2", "qwen3-moe", "deepseek2", "granite4")


def compact_layers(model: CausalLM) -> int:
    return sum(isinstance(each.packed, CompactWeight) for each in model.modules() if isinstance(each, WeightLayer))


@needs_kernels
@pytest.mark.parametrize("name", quick(["llama-tied", "gpt2", "deepseek2"], WHOLE_MODELS))
def test_tokens_and_logprobs_are_those_of_plain_weights(name: str) -> None:
    prompts = [*PROMPTS[1:5], random_ids(64, 1), random_ids(150, 3)]

    def run(weights: str) -> list[Any]:
        llm = make_llm(name, max_model_len=300, dtype="bfloat16", weights=weights)
        assert bool(compact_layers(llm.engine.runner.model)) == (weights == "packed12")
        params = greedy_params(8, logprobs=3, prompt_logprobs=2)
        outputs = llm.generate([{"prompt_token_ids": list(each)} for each in prompts], params, use_tqdm=False)
        return [(each.outputs[0].token_ids, each.outputs[0].logprobs, each.prompt_logprobs) for each in outputs]

    assert run("packed12") == run("plain")


@needs_kernels
def test_ranks_compute_the_same_bits(tmp_path: Path) -> None:
    directory = make_checkpoint("llama", tmp_path, vocab_size=253, intermediate_size=90)

    def logits(weights: str) -> torch.Tensor:
        return on_ranks(2, lambda group: logits_of(load(directory, group, dtype="bfloat16", weights=weights)))[0]

    assert torch.equal(as_tensor(logits("packed12")), as_tensor(logits("plain")))


@needs_kernels
def test_memory_is_planned_with_what_compact_weights_take() -> None:
    source = resolve_model("random:smollm2-135m")
    loader = LayerLoader(source, dtype="bfloat16")
    loader.lay_out("packed12")
    planned = loader.pending_memory()
    loader.close()
    taken = load_model(source, dtype="bfloat16", weights="packed12", use_tqdm=False).weight_bytes()
    assert 0.98 < taken / planned < 1.01
    assert memory_of(source.config, "bfloat16", weights="packed12") == planned
    assert taken < 0.77 * load_model(source, dtype="bfloat16", weights="plain", use_tqdm=False).weight_bytes()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"dtype": "float32"}, "float32"), ({"dtype": "bfloat16", "quantization": "int8"}, "int8")],
)
def test_weights_that_cannot_be_compact_stay_and_the_log_says_why(
    options: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    if "quantization" in options and load_kernels().functions is None:
        pytest.skip("quantized weights need kernels")
    with caplog.at_level(logging.INFO, "quire"):
        model = load_model(resolve_model("random:tiny"), weights="packed12", use_tqdm=False, **options)
        load_model(resolve_model("random:tiny"), weights="auto", use_tqdm=False, **options)
    assert model.weights == "plain"
    assert not compact_layers(model)
    (message,) = (each.getMessage() for each in caplog.records if "packed12" in each.getMessage())
    assert reason in message


def test_other_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="weights"):
        EngineConfig(model="random:tiny", weights="packed8")
