"""Multi-head latent attention: products per head, what a block holds, and details of its checkpoints."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from checkpoints import make_checkpoint, make_config, make_reference
from kernel_levels import LEVELS, library_of
from models.test_same_logits import our_logits, reference_logits, relative_error
from quire.attention.interface import KVLayout
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.models.latent_attention import HeadWeights, LatentProjection
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel import ParallelGroup
from quire.models.registry import build_model, read_model_config
from quire.ops.arrays import as_numpy, as_tensor

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7}
IDS = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(3))
#: Of the hub's config.json files, less layers.
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "norm_topk_prob": True,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": False,
    "rope_scaling": {
        "type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
    "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 1,
}  # fmt: skip


@pytest.fixture(params=LEVELS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library_of(request.param)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    num_rows=st.sampled_from([0, 1, 5, 13, 70]),
    sizes=st.one_of(st.sampled_from([(64, 96), (128, 512)]), st.tuples(st.integers(1, 90), st.integers(1, 90))),
    num_heads=st.sampled_from([1, 3, 20]),
    num_copied=st.sampled_from([0, 1, 8]),
    dtype=st.sampled_from(list(TOLERANCE)),
)
def test_products_per_head_are_those_of_float64(
    library: ctypes.CDLL, num_rows: int, sizes: tuple[int, int], num_heads: int, num_copied: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    inputs, outputs = sizes
    x = torch.randn(num_rows, num_heads, inputs + num_copied, generator=generator).to(dtype)
    weight = (torch.randn(num_heads, outputs, inputs, generator=generator) / inputs**0.5).to(dtype)
    weights = HeadWeights(as_numpy(weight), library)
    found = weights.product(x, num_copied)
    exact = torch.einsum("thi,hoi->tho", x[..., :inputs].double(), weight.double())
    assert found.shape == (num_rows, num_heads, outputs + num_copied)
    assert torch.equal(found[..., outputs:], x[..., inputs:])
    for row in range(min(num_rows, 3)):
        error = (found[row, :, :outputs].double() - exact[row]).abs().max()
        assert error <= TOLERANCE[dtype] * exact.abs().max()
        assert torch.equal(weights.product(x[row : row + 1], num_copied)[0], found[row]), "neighbours changed it"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_block_holds_one_latent_and_one_rotated_key_per_token_on_each_rank(size: int) -> None:
    config = read_model_config(DEEPSEEK_V3)
    for rank in range(size):
        model = build_model(config, torch.bfloat16, "meta", ParallelGroup(rank, size))
        layout = KVLayout(model.attention_layers(), 16)
        assert layout.block_bytes(2) == 4 * 16 * 576 * 2
        assert all(each.num_heads == 128 // size and each.value_dim == 512 for each in layout.layers)
    assert config.kv_bytes("bfloat16") == 4 * 576 * 2


def test_the_whole_of_deepseek_v3_is_counted() -> None:
    config = read_model_config(DEEPSEEK_V3 | {"num_hidden_layers": 61})
    assert config.num_parameters == pytest.approx(671e9, rel=1e-3)
    assert config.num_active_parameters == pytest.approx(37e9, rel=0.02)
    assert config.attention_scale == pytest.approx(192**-0.5 * (0.1 * 3.6888794541139363 + 1) ** 2)


@pytest.mark.parametrize("name", ["deepseek3", "glm4_moe_lite"])
def test_pairs_that_are_not_interleaved_turn_as_in_transformers(name: str, tmp_path: Path) -> None:
    directory = make_checkpoint(name, tmp_path, rope_interleave=False)
    ours, theirs = our_logits(directory, IDS), reference_logits(directory, IDS)
    assert relative_error(ours, theirs) < 1e-3
    change(directory, rope_interleave=True)
    assert relative_error(our_logits(directory, IDS), theirs) > 0.1


def test_attention_biases_are_those_of_transformers(tmp_path: Path) -> None:
    directory = make_checkpoint("deepseek2-groups", tmp_path, attention_bias=True)
    assert relative_error(our_logits(directory, IDS), reference_logits(directory, IDS)) < 1e-3


def test_without_kernels_torch_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_checkpoint("deepseek3", tmp_path)
    expected = our_logits(directory, IDS)
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    assert relative_error(our_logits(directory, IDS), expected) < 1e-3


def test_a_config_in_the_dialect_of_transformers_4_means_the_same(tmp_path: Path) -> None:
    directory = make_checkpoint("deepseek3-rope-yarn", tmp_path)
    expected = our_logits(directory, IDS)
    config = json.loads((directory / "config.json").read_text())
    rope = config.pop("rope_parameters")
    change(directory, rope_parameters=None, rope_theta=rope.pop("rope_theta"), rope_scaling=rope)
    assert torch.equal(our_logits(directory, IDS), expected)
    rope["mscale_all_dim"] = 0
    change(directory, rope_scaling=rope)
    assert relative_error(our_logits(directory, IDS), expected) > 0.01


def change(directory: Path, **fields: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_the_layer_that_predicts_a_second_token_is_left_out(tmp_path: Path) -> None:
    directory = make_checkpoint("glm4_moe_lite", tmp_path)
    expected = our_logits(directory, IDS)
    file = directory / "model.safetensors"
    tensors = load_file(file)
    tensors |= {f"model.layers.3.{name}": torch.ones(8, 8) for name in ("eh_proj.weight", "self_attn.o_proj.weight")}
    save_file(tensors, file)
    assert torch.equal(our_logits(directory, IDS), expected)


@pytest.mark.skipif(load_kernels().functions is None, reason="quantized weights need kernels")
def test_quantization_leaves_the_weights_of_latents_alone(tmp_path: Path) -> None:
    directory = make_checkpoint("glm4_moe_lite", tmp_path)
    model = load_model(resolve_model(str(directory)), dtype="float32", quantization="int4", use_tqdm=False)
    saved = load_file(directory / "model.safetensors")["model.layers.0.self_attn.kv_b_proj.weight"]
    projection = model.layers[0].self_attn.kv_b_proj
    assert isinstance(projection, LatentProjection)
    latents = torch.randn(5, 4, 24)
    exact = torch.einsum("thr,hvr->thv", latents, saved.reshape(4, 28, 24)[:, 16:])
    torch.testing.assert_close(as_tensor(projection.values(as_numpy(latents))), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("deepseek2", "norm_topk_prob", True), ("deepseek2", "topk_method", "noaux_tc"),
        ("deepseek3", "scoring_func", "softmax"), ("deepseek3", "topk_method", "greedy"),
        ("glm4_moe_lite", "moe_layer_freq", 2),
    ],
)  # fmt: skip
def test_ways_to_choose_experts_that_are_not_there_are_refused_by_name(name: str, field: str, value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=field):
        read_model_config(make_config(name).to_dict() | {"architectures": None, field: value})


def test_dense_layers_may_be_listed_one_by_one() -> None:
    reference = make_reference("glm4_moe_lite", mlp_layer_types=["sparse", "dense", "sparse"])
    config = read_model_config(reference.config.to_dict())
    assert config.experts is not None
    assert config.experts.dense_layers == (1,)
    assert config.num_parameters == reference.num_parameters() + 2 * 8
    assert replace(config.experts, dense_layers=()) != config.experts
