"""Configs are read in both dialects, and unsupported ones are rejected by name."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from checkpoints import ARCHITECTURES, make_config, make_reference
from quire.models.encodings import QuantizedWeights
from quire.models.model_config import (
    NOT_ARITHMETIC,
    ExpertsConfig,
    LatentConfig,
    LayerConfig,
    ModelConfig,
    ModelConfigError,
    UnsupportedModelError,
    check_tokenizer_fits,
)
from quire.models.registry import ARCHITECTURES as REGISTRY
from quire.models.registry import build_model, read_model_config
from quire.models.rotary import RotaryEmbedding, inverse_frequencies
from quire.models.states.config import DeltaConfig
from quire.ops.on_torch import rotation


def read(name: str, **changes: Any) -> ModelConfig:
    """Read the tiny variant's config with fields replaced; None removes one."""
    config = make_config(name).to_dict()
    config["architectures"] = [each.name for each in REGISTRY.values() if each.model_type == config["model_type"]]
    config.update(changes)
    return read_model_config({key: value for key, value in config.items() if value is not None})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_parameters_are_counted_without_building_the_model(name: str) -> None:
    reference = make_reference(name)
    config = read_model_config(reference.config.to_dict())
    scalars = sum(
        buffer.numel()
        for key, buffer in reference.named_buffers()
        if key.endswith(("layer_scalar", "_correction_bias", "expert_bias"))
    )
    assert config.num_parameters == reference.num_parameters() + scalars
    assert build_model(config, torch.bfloat16, "meta").weight_bytes() == config.weight_bytes("bfloat16")


def test_kv_bytes_count_keys_and_values_of_all_layers() -> None:
    config = read("qwen3")
    assert config.kv_bytes("float32") == 2 * 3 * 2 * 32 * 4
    assert config.kv_bytes("bfloat16") == 2 * 3 * 2 * 32 * 2
    assert config.kv_bytes("bfloat16", 100) == 100 * config.kv_bytes("bfloat16")
    with pytest.raises(ValueError, match="int4"):
        config.kv_bytes("int4")


@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3", "yarn", "longrope"])
def test_rope_frequencies_equal_those_of_transformers(rope_type: str) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters: dict[str, Any] = {"rope_type": rope_type, "rope_theta": 500000.0}
    if rope_type != "default":
        parameters["factor"] = 8.0
    if rope_type == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if rope_type == "longrope":
        parameters |= {"short_factor": [1 + 0.03 * i for i in range(64)], "long_factor": [9.0] * 64}
    if rope_type in ("llama3", "yarn", "longrope"):
        parameters["original_max_position_embeddings"] = 8192
    hf = make_config("llama", rope_parameters=parameters, head_dim=128, max_position_embeddings=65536)
    theirs = LlamaRotaryEmbedding(hf)
    config = read_model_config(hf.to_dict() | {"architectures": ["LlamaForCausalLM"]})
    assert config.rope is not None
    ours, scale = inverse_frequencies(config.rope)
    torch.testing.assert_close(torch.from_numpy(ours), theirs.inv_freq, rtol=2e-7, atol=0)
    assert scale == pytest.approx(theirs.attention_scaling)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"rope_type": "default"}, 512),
        ({"rope_type": "linear", "factor": 4.0}, 2048),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, 512),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}, 512),
        ({"rope_type": "dynamic", "factor": 4.0}, 512),  # its frequencies change beyond the original context
        ({"rope_type": "longrope", "short_factor": [1.0] * 8, "original_max_position_embeddings": 64}, 64),
    ],
)  # fmt: skip
def test_the_context_length_follows_the_rope_scaling(parameters: dict[str, Any], expected: int) -> None:
    assert read("llama", rope_parameters={"rope_theta": 10000.0, **parameters}).context_length == expected


@pytest.mark.parametrize(
    "architecture",
    ["GemmaForCausalLM", "MambaForCausalLM", "JambaForCausalLM", "LlavaForConditionalGeneration",
     "BertModel", "T5ForConditionalGeneration", "LlamaForSequenceClassification", "MistralModel"],
)  # fmt: skip
def test_an_unknown_architecture_is_refused_by_name_with_what_is_supported(architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{architecture} is not supported.*LlamaForCausalLM.*OPT"):
        read("llama", architectures=[architecture])


def test_the_model_type_stands_in_for_missing_architectures() -> None:
    assert read("qwen2", architectures=None).architecture == "Qwen2ForCausalLM"
    with pytest.raises(UnsupportedModelError, match="model_type 'gemma3'"):
        read_model_config({"model_type": "gemma3"})
    with pytest.raises(ModelConfigError, match="names neither"):
        read_model_config({"hidden_size": 4})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama", {"rope_parameters": {"rope_type": "ntk", "rope_theta": 1e4}}, "'ntk'.*llama3, yarn"),
        ("llama", {"rope_parameters": None, "rope_scaling": {"type": "mrope"}}, "'mrope'"),
        ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "RoPE that differs between layers"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("llama", {"hidden_act": "xielu"}, "'xielu'"),
        ("llama", {"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
        ("llama", {"quantization_config": {"quant_method": "awq", "version": "gemv"}}, "awq .*gemv"),
        ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 3}}, "gptq .3 bits"),
        ("llama", {"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}, "fp8 .'e5m2'"),
        ("llama", {"is_encoder_decoder": True}, "encoder-decoder"),
        ("qwen3", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "'linear_attention'"),
        ("qwen3_5", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim than 4"),
        ("qwen3_5", {"linear_key_head_dim": 24}, "heads of 24 and 32"),
        ("qwen3_5", {"linear_num_value_heads": 3}, "3 value heads for 4 key heads"),
        ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate=false"),
        ("granite4", {"mamba_d_conv": 3}, "another mamba_d_conv than 4"),
        ("granite4", {"mamba_n_groups": 3}, "4 heads of Mamba in 3 groups"),
        ("granite4", {"mamba_d_state": 20}, "states of 20 and heads of 32"),
        ("granite4", {"mamba_proj_bias": True}, "mamba_proj_bias=true"),
        ("granite4", {"time_step_limit": [0.0, 1.0]}, "time_step_limit"),
        ("lfm2", {"conv_L_cache": 4}, "another conv_L_cache than 3"),
        ("lfm2", {"hidden_size": 72}, "72 channels"),
        ("qwen3_5", {"layer_types": ["sliding_attention"] * 4}, "'sliding_attention'"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=false"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=true"),
        ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=true"),
        ("gpt2", {"add_cross_attention": True}, "cross-attention"),
        ("gpt2", {"activation_function": "mish"}, "'mish'.*gelu_new"),
        ("opt", {"activation_function": "prelu"}, "'prelu'"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        read(name, **changes)


@pytest.mark.parametrize(
    ("name", "changes", "windows"),
    [
        ("mistral", {"sliding_window": 512}, [512, 512, 512]),
        ("mistral", {"max_position_embeddings": 8192}, [4096, 4096, 4096]),  # absent means 4096
        ("qwen2", {"use_sliding_window": False, "sliding_window": 64, "layer_types": None}, [0, 0, 0]),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3, "layer_types": None},
         [0, 0, 0]),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1, "layer_types": None},
         [0, 64, 64]),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 64,
                   "use_sliding_window": True}, [0, 64, 0]),
        ("phi3", {"sliding_window": 2047}, [2047, 2047, 2047]),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 64, "layer_types": None}, [0, 0, 64]),
    ],
)  # fmt: skip
def test_layers_have_their_windows(name: str, changes: dict[str, Any], windows: list[int]) -> None:
    assert [layer.window for layer in read(name, **changes).layer_configs] == windows


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama", {"hidden_size": None}, "no 'hidden_size'"),
        ("gpt2", {"n_head": None}, "no 'n_head'"),
        ("llama", {"num_hidden_layers": "3"}, "num_hidden_layers is '3'"),
        ("llama", {"vocab_size": 0}, "vocab_size is 0"),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ("llama", {"eos_token_id": ["a"]}, "eos_token_id"),
        ("llama", {"num_key_value_heads": 3}, "multiple"),
        ("llama", {"head_dim": 15}, "even"),
        ("llama", {"architectures": "LlamaForCausalLM"}, "expected a list"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "no 'factor'"),
        ("llama", {"rope_parameters": "none"}, "RoPE parameters are 'none'"),
        (
            "phi3",
            {"rope_scaling": {"type": "su", "short_factor": [1.0]}, "rope_parameters": None},
            "expected 8 numbers",
        ),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("qwen3", {"layer_types": ["full_attention"]}, "one for each of 3"),
    ],
)
def test_a_broken_config_is_an_error_that_names_the_field(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        read(name, **changes)


def test_several_end_tokens_are_all_kept() -> None:
    assert read("llama", eos_token_id=[2, 7]).eos_token_ids == (2, 7)
    assert read("llama", eos_token_id=None).eos_token_ids == ()


def test_a_tokenizer_larger_than_the_embedding_is_refused() -> None:
    config = read("llama")
    check_tokenizer_fits(config, 256)
    check_tokenizer_fits(config, 100)
    with pytest.raises(ValueError, match=r"257 token ids.*only 256 rows"):
        check_tokenizer_fits(config, 257)


#: Another value of every field that KV depends on. A new field belongs here, or into NOT_ARITHMETIC with a reason.
ARITHMETIC: dict[str, Any] = {
    "architecture": "MistralForCausalLM",
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_layers": 4,
    "num_heads": 8,
    "num_kv_heads": 1,
    "head_dim": 32,
    "norm_eps": 1e-5,
    "hidden_act": "relu",
    "rope": None,
    "qkv_bias": True,
    "attention_out_bias": True,
    "mlp_bias": True,
    "gated_mlp": False,
    "qk_norm": True,
    "norm_has_bias": True,
    "norm_offset": 1.0,
    "norm_is_affine": False,
    "qk_norm_all_heads": True,
    "norm_outputs": True,
    "embedding_multiplier": 2.0,
    "residual_multiplier": 2.0,
    "norm_before": False,
    "final_norm": False,
    "embedding_dim": 32,
    "num_position_rows": 9,
    "layers": (LayerConfig(1, 16, None, window=4),) * 3,
    "attention_scale": 0.5,
    "per_layer_size": 8,
    "attention_softcap": 50.0,
    "experts": ExpertsConfig(8, 2, 16),
    "latent": LatentConfig(32, 16, 8, 16),
    "quantized": QuantizedWeights("awq", 4),
    "has_attention_gate": True,
    "gate_and_up_apart": True,
    "state": DeltaConfig(2, 4, 16, 16),
}
OTHERWISE: dict[str, Any] = {
    "dtype": "float16",
    "eos_token_ids": (7,),
    "initializer_range": 0.3,
    "logits_multiplier": 0.5,
    "text_of": "Mistral3ForConditionalGeneration",
    "logits_softcap": 30.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def test_every_field_of_the_config_changes_the_arithmetic_or_is_known_not_to() -> None:
    config = read("llama")
    assert {*ARITHMETIC, *OTHERWISE} == {field.name for field in fields(ModelConfig)}
    assert OTHERWISE.keys() == NOT_ARITHMETIC.keys()
    changed = {replace(config, **{name: value}).arithmetic for name, value in ARITHMETIC.items()}
    assert len({config.arithmetic, *changed}) == len(ARITHMETIC) + 1
    assert replace(config, **OTHERWISE).arithmetic == config.arithmetic


def test_every_number_of_rope_changes_the_arithmetic() -> None:
    config = read("llama-rope-yarn")
    assert config.rope is not None
    rope = config.rope
    others = [replace(rope, theta=5.0), replace(rope, rope_type="linear")]
    others += [
        replace(rope, scaling=(*rope.scaling[:i], (name, value + 1), *rope.scaling[i + 1 :]))
        for i, (name, value) in enumerate(rope.scaling)
    ]
    assert len({config.arithmetic, *(replace(config, rope=other).arithmetic for other in others)}) == len(others) + 1


def test_a_gpu_gets_the_rotation_of_arrays() -> None:
    config = read_model_config(make_config("llama").to_dict() | {"architectures": ["LlamaForCausalLM"]})
    assert config.rope is not None
    rotary = RotaryEmbedding(config.rope)
    positions = np.array([0, 5, 70_000])
    for ours, theirs in zip(
        rotary(positions, np.dtype(np.float32)),
        rotation(torch.from_numpy(positions), torch.from_numpy(rotary.frequencies), rotary.scale, torch.float32),
        strict=True,
    ):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=0, atol=2e-7)


def test_windows_bound_the_memory_of_a_sequence() -> None:
    config = read("mistral-window")
    assert config.kv_bytes("float32", 1000) == 16 * config.kv_bytes("float32")


def test_older_configs_of_hybrids_name_layers_otherwise() -> None:
    kinds = ["mamba", "attention", "mamba", "attention"]
    assert read("granite4", layer_types=kinds) == read("granite4")
    assert read("granite4", layer_types=None, layers_block_type=kinds) == read("granite4")
    assert read("lfm2", layer_types=None, full_attn_idxs=[1, 3]) == read("lfm2")
    names = {"intermediate_size": None, "block_ff_dim": 96, "tie_word_embeddings": None, "tie_embedding": False}
    assert read("lfm2", **names) == read("lfm2")


def test_granite_4_may_have_attention_alone() -> None:
    config = read("granite4", layer_types=["attention"] * 4, position_embedding_type="rope")
    assert config.state is None
    assert all(layer.rope is not None and not layer.has_state for layer in config.layer_configs)
