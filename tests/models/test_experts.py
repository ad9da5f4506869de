"""Mixtures of experts: routing, grouping by expert, loading of stacked experts, and passes without Python."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from checkpoints import make_reference
from kernel_levels import LEVELS, library_of
from parameters import quick
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.loading.presets import preset_config
from quire.models import experts as experts_module
from quire.models.experts import SparseMLP, check_experts, choose
from quire.models.linear.block_weight import TYPES, BlockRows, BlockWeight
from quire.models.linear.layer import Linear
from quire.models.model_config import ExpertsConfig, ModelConfig, ModelConfigError
from quire.models.parallel import ALONE, ModelSplit
from quire.models.registry import read_model_config
from quire.ops.arrays import as_numpy, as_tensor, numpy_dtype
from tensors import hidden_states

needs_kernels = pytest.mark.skipif(load_kernels().functions is None, reason="there are no kernels")

CONFIG = read_model_config(preset_config("random:tiny") | {"hidden_size": 96, "intermediate_size": 96})
MIXTURE = ExpertsConfig(count=8, chosen=3, inner=64, shared_inner=32, shared_gate=True)
CLAMPED = ExpertsConfig(8, 3, 64, "softmax_of_chosen", normalizes=False, has_biases=True, limit=2.0, alpha=1.702)


def make_mlp(mixture: ExpertsConfig, dtype: Any, quantization: str = "none", hidden: int = 96) -> SparseMLP:
    """Return packed random experts. Their router's logits are far apart, as rounding may change near ones."""
    config = replace(CONFIG, experts=mixture, hidden_size=hidden)
    mlp = SparseMLP(config, ModelSplit(config, ALONE), dtype=dtype, device="cpu")
    generator = np.random.default_rng(0)
    for module in mlp.modules():
        for _, array in module.named_parameters():
            array[...] = as_like(generator.standard_normal(array.shape, np.float32) * 0.3, array)
        if isinstance(module, Linear) and quantization in TYPES and module.is_quantizable:
            values = as_numpy(module.weight).astype(np.float32)
            rows = gguf.quants.quantize(values, gguf.GGMLQuantizationType[quantization])
            library = load_kernels().functions
            assert library is not None
            blocks = BlockWeight([BlockRows(quantization, rows)], module.in_features, np.dtype(np.float32), library)
            module.packed, module.weight = blocks, None
        elif isinstance(module, Linear):
            module.quantization = quantization if module.is_quantizable else "none"
            module.pack()
    return mlp


def as_like(values: np.ndarray, array: Any) -> Any:
    return values.astype(array.dtype) if isinstance(array, np.ndarray) else torch.from_numpy(values).to(array.dtype)


def rows_of(count: int, dtype: np.dtype, hidden: int = 96) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, hidden), np.float32).astype(dtype)


MIXTURES = [
    MIXTURE,
    replace(MIXTURE, shared_inner=0, shared_gate=False, normalizes=False, scale=2.5),
    replace(MIXTURE, scores="sigmoid", shared_gate=False),
    replace(MIXTURE, scores="softmax_of_chosen", normalizes=False, chosen=8),
    CLAMPED,
    replace(MIXTURE, normalizes=False, num_groups=4, num_chosen_groups=2, has_float_logits=True, shared_gate=False),
    replace(
        MIXTURE, count=16, scores="sigmoid", num_groups=4, num_chosen_groups=2, num_of_group=2, has_choice_bias=True,
        has_float_logits=True, shared_gate=False, scale=2.5,
    ),
]  # fmt: skip
NAMES = ["softmax", "plain", "sigmoid", "chosen", "clamped", "groups", "biased"]


@needs_kernels
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mixture", MIXTURES, ids=NAMES)
def test_kernels_compute_what_the_experts_do_one_by_one(
    level: str, mixture: ExpertsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_of(level)
    monkeypatch.setattr("quire.models.linear.panel_weight.panel_kernels", lambda dtype: library)
    function = library["quire_experts_float32"]
    monkeypatch.setattr(experts_module, "_function", lambda dtype, level: function)
    mlp = make_mlp(mixture, torch.float32)
    for count in (1, 2, 37, 1500):  # more pairs than are computed at once
        x = as_tensor(rows_of(count, np.dtype(np.float32)))
        logits = mlp.gate(x)
        shared = None if mlp.shared_expert is None else mlp.shared_expert.addend(x)
        gate = None if mlp.shared_expert_gate is None else mlp.shared_expert_gate(x)
        bias = getattr(mlp.gate, "e_score_correction_bias", None)
        expected = mlp.experts._reference(x, logits, shared, gate, bias)
        torch.testing.assert_close(mlp(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", quick(["softmax", "clamped", "gelu"], [*NAMES, "gelu"]))
def test_a_gpu_computes_what_the_experts_do_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Triton's interpreter if there is none."""
    mixture, activation = (MIXTURE, "gelu_tanh") if name == "gelu" else (MIXTURES[NAMES.index(name)], "silu")
    pytest.importorskip("triton")
    monkeypatch.setattr(experts_module, "uses_triton", lambda device: True)
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda *_, **__: None)
    mlp = make_mlp(mixture, torch.float32)
    experts = mlp.experts
    if not mixture.limit:
        experts.activation = activation
        for each in experts:
            each.activation = activation
    experts.factors = np.linspace(0.5, 2, mixture.count, dtype=np.float32) if activation == "gelu_tanh" else None
    check_experts(mlp)
    x = as_tensor(rows_of(5, np.dtype(np.float32)))
    found = mlp(x)
    assert experts._grouped() is not None
    experts._products = experts._products[0], None
    torch.testing.assert_close(found, mlp(x), rtol=1e-4, atol=1e-4)


def test_packed_experts_are_not_grouped_and_wrong_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(experts_module, "uses_triton", lambda device: True)
    if load_kernels().functions is not None:
        packed = make_mlp(MIXTURE, torch.float32)
        assert packed.experts._grouped() is None
        check_experts(packed)
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda *_, **__: None)
    mlp = make_mlp(MIXTURE, torch.float32)
    experts = mlp.experts
    assert experts._grouped() is experts._grouped()
    experts._products = experts._products[0], lambda x, *_: x
    with pytest.raises(ValueError, match=r"kernel for experts differs by .*; set QUIRE_KERNELS=none"):
        check_experts(mlp)


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_experts_of_groups_are_chosen_as_by_transformers(name: str) -> None:
    mixture = MIXTURES[NAMES.index("groups" if name == "deepseek_v2" else "biased")]
    family = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    prefix = name.title().replace("_", "")
    config = getattr(family, f"{prefix}Config")(
        hidden_size=96, n_routed_experts=mixture.count, num_experts_per_tok=mixture.chosen, n_group=mixture.num_groups,
        topk_group=mixture.num_chosen_groups, topk_method="group_limited_greedy", routed_scaling_factor=mixture.scale,
        norm_topk_prob=mixture.normalizes,
    )  # fmt: skip
    router = getattr(family, f"{prefix}TopkRouter")(config)
    x, bias = torch.from_numpy(rows_of(200, np.dtype(np.float32))), None
    torch.nn.init.normal_(router.weight, generator=torch.Generator().manual_seed(0))
    if mixture.has_choice_bias:
        bias = router.e_score_correction_bias.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, weights, experts = router(x)
    experts, order = experts.sort(-1)
    found, found_weights = choose(logits, mixture, bias)
    assert torch.equal(found, experts)
    torch.testing.assert_close(found_weights, weights.gather(1, order))
    without = choose(logits, replace(mixture, num_groups=1, num_chosen_groups=1), None if bias is None else 0 * bias)
    assert (without[0] != experts).any(-1).float().mean() > 0.3, "groups and bias do not matter here"


@needs_kernels
def test_a_float_router_keeps_what_bfloat16_rounds_away() -> None:
    dtype = numpy_dtype("bfloat16")
    mlp = make_mlp(MIXTURES[-1], dtype)
    x = rows_of(64, dtype)
    logits = mlp.gate(x)
    assert logits.dtype == np.float32
    assert (logits != logits.astype(dtype)).mean() > 0.9
    assert np.array_equal(mlp(x[5:6]), mlp(x)[5:6])


@needs_kernels
@pytest.mark.parametrize("quantization", ["none", "int8", "int4", "Q8_0", "Q4_0", "MXFP4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mixture", [MIXTURE, CLAMPED], ids=["gated", "clamped"])
def test_a_row_does_not_depend_on_other_rows(mixture: ExpertsConfig, dtype: str, quantization: str) -> None:
    mlp = make_mlp(mixture, numpy_dtype(dtype), quantization)
    x = rows_of(800, numpy_dtype(dtype))
    together = mlp(x)
    for rows in ([0], [799], [3, 700], list(range(100, 140))):
        assert np.array_equal(mlp(x[rows]), together[rows])
    assert np.array_equal(mlp(x[::-1].copy()), together[::-1])
    assert len(np.unique(together[:, 0])) > 400
    assert mlp(x[:0]).shape == (0, 96)


@needs_kernels
@pytest.mark.parametrize(("quantization", "error"), [("int8", 0.02), ("int4", 0.2), ("Q8_0", 0.02), ("Q4_0", 0.25)])
@pytest.mark.parametrize("mixture", [MIXTURE, CLAMPED], ids=["gated", "clamped"])
def test_quantized_experts_are_close_to_plain_ones(mixture: ExpertsConfig, quantization: str, error: float) -> None:
    x = rows_of(64, np.dtype(np.float32))
    exact, found = (make_mlp(mixture, np.dtype(np.float32), each)(x) for each in ("none", quantization))
    assert 0 < np.abs(found - exact).mean() < error * np.abs(exact).mean()


@needs_kernels
@pytest.mark.parametrize("mixture", [MIXTURE, CLAMPED], ids=["gated", "clamped"])
def test_experts_that_are_packed_in_different_ways_are_computed_one_by_one(mixture: ExpertsConfig) -> None:
    plain, mixed = (make_mlp(mixture, np.dtype(np.float32), quantization) for quantization in ("none", "int8"))
    x = rows_of(9, np.dtype(np.float32))
    exact = plain(x)
    for expert, other in zip(plain.experts, mixed.experts, strict=True):
        expert.up_proj = other.up_proj
    plain.experts._calls.clear()
    found = plain(x)
    assert 0 < np.abs(found - exact).mean() < 0.02 * np.abs(exact).mean()


def test_the_first_of_equal_experts_is_chosen() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0, 2.0, 1.0, 1.0]])
    experts, weights = choose(logits, replace(MIXTURE, count=8))
    assert experts.tolist() == [[1, 2, 3]]
    torch.testing.assert_close(weights, torch.full((1, 3), 1 / 3))
    if load_kernels().functions is not None:
        mlp = make_mlp(MIXTURE, np.dtype(np.float32))
        x = rows_of(1, np.dtype(np.float32))
        expected = mlp.experts._reference(as_tensor(x), logits, None, None)
        torch.testing.assert_close(as_tensor(mlp.experts(x, logits.numpy())), expected, rtol=1e-4, atol=1e-4)


@needs_kernels
def test_logits_that_are_not_numbers_choose_some_experts() -> None:
    mlp = make_mlp(MIXTURE, np.dtype(np.float32))
    found = mlp.experts(rows_of(2, np.dtype(np.float32)), np.full((2, 8), np.nan, np.float32))
    assert np.isnan(found).all()


@pytest.mark.parametrize("name", ["qwen2-moe", "qwen3-moe", "mixtral"])
def test_stacked_experts_load_as_separate_ones(name: str, tmp_path: Path) -> None:
    reference = make_reference(name)
    models = []
    for original in (True, False):
        directory = tmp_path / str(original)
        reference.save_pretrained(directory, save_original_format=original)
        models.append(load_model(resolve_model(str(directory)), device="cpu", use_tqdm=False))
    found = [hidden_states(model, torch.arange(9), torch.arange(9), lambda layer, q, k, v: q) for model in models]
    assert torch.equal(*found)


def test_a_mixture_that_chooses_more_experts_than_it_has_is_refused() -> None:
    with pytest.raises(ModelConfigError, match="chooses 9 of 8 experts"):
        replace(MIXTURE, chosen=9)


@pytest.mark.parametrize("groups", [(3, 1, 1), (4, 1, 1), (4, 5, 1), (4, 2, 3)])
def test_groups_that_do_not_hold_the_chosen_experts_are_refused(groups: tuple[int, int, int]) -> None:
    with pytest.raises(ModelConfigError, match="groups, which 8 experts do not allow"):
        replace(MIXTURE, num_groups=groups[0], num_chosen_groups=groups[1], num_of_group=groups[2])


def test_active_parameters_are_those_of_the_chosen_experts() -> None:
    values = make_reference("qwen3-moe").config.to_dict()
    config: ModelConfig = read_model_config(values)
    assert config.experts is not None
    expert = 3 * config.hidden_size * config.experts.inner
    assert config.num_parameters - config.num_active_parameters == 3 * (8 - 3) * expert
