"""Tiny `transformers` checkpoints of every architecture variant, initialised so that errors change their outputs.

With the usual small initialisation a tied model repeats one token whatever its cache holds. A standard deviation of
0.3, noisy norms and random biases make nearly every output depend on nearly every input. Models without a gated MLP
also get sharper attention, and weaker MLPs and biases, which would otherwise hide the differences between inputs.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from parameters import quick

_LLAMA: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
_LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
_LONG_ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 256}
_LONG_ROPE |= {"short_factor": [1.0, 1.1, 1.3, 2.0, 2.5, 3.0], "long_factor": [2.0] * 6, "partial_rotary_factor": 0.75}
_MINISTRAL_ROPE = {**_YARN_ROPE, "llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0}
_OLMO3_ROPE = {"full_attention": _YARN_ROPE, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
_LOCAL_GLOBAL_LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA3: dict[str, Any] = {
    "head_dim": 24,
    "query_pre_attn_scalar": 1,
    "sliding_window": 16,
    "layer_types": _LOCAL_GLOBAL_LOCAL,
    "rope_parameters": {
        "full_attention": _LINEAR_ROPE,
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
    "final_logit_softcapping": 5.0,
    "tie_word_embeddings": True,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
_GEMMA4: dict[str, Any] = {
    "head_dim": 24,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "final_logit_softcapping": 5.0,
    "vocab_size_per_layer_input": 256,
    "hidden_size_per_layer_input": 32,
}
_GEMMA4_SHARED = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "q_lora_rank": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
_GLM4_MOE: dict[str, Any] = {
    "head_dim": 24,
    "attention_bias": True,
    "use_qk_norm": True,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "routed_scaling_factor": 1.5,
}
_GROUPS = {"n_routed_experts": 16, "n_group": 4, "topk_group": 2}
_DEEPSEEK_ROPE = {**_YARN_ROPE, "mscale": 1.0, "mscale_all_dim": 0.7}
_HYBRID: dict[str, Any] = {
    "head_dim": 24,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}
_LFM2: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}
_GRANITE4: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "mamba_n_heads": 4,
    "mamba_d_state": 32,
    "shared_intermediate_size": 96,
    "intermediate_size": 32,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.7,
    "logits_scaling": 5.0,
}
_GPT2: dict[str, Any] = {
    "vocab_size": 256,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 512,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
_OPT: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "ffn_dim": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "word_embed_proj_dim": 64,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}

_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _LLAMA),
    "llama-biases": ("Llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "llama-rope-llama3": ("Llama", {**_LLAMA, "rope_parameters": _LLAMA3_ROPE}),
    "llama-rope-linear": ("Llama", {**_LLAMA, "rope_parameters": _LINEAR_ROPE}),
    "llama-rope-yarn": ("Llama", {**_LLAMA, "rope_parameters": _YARN_ROPE}),
    "llama-tied": ("Llama", {**_LLAMA, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**_LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2", {**_LLAMA, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**_LLAMA, "head_dim": 32, "tie_word_embeddings": True}),
    "phi3": ("Phi3", {**_LLAMA, "original_max_position_embeddings": 512}),
    "phi3-rope-longrope": ("Phi3", {**_LLAMA, "original_max_position_embeddings": 256, "rope_parameters": _LONG_ROPE}),
    "glm": ("Glm", {**_LLAMA, "head_dim": 24, "attention_bias": True}),
    "glm4": ("Glm4", {**_LLAMA, "head_dim": 16}),
    "olmo2": ("Olmo2", _LLAMA),
    "smollm3": ("SmolLM3", {**_LLAMA, "no_rope_layers": [1, 1, 0]}),
    "seed_oss": ("SeedOss", {**_LLAMA, "head_dim": 24, "attention_bias": True, "attention_out_bias": False}),
    "internlm3": ("InternLM3", {**_LLAMA, "head_dim": 24, "attention_bias": True, "mlp_bias": True}),
    "ministral3-rope": ("Ministral3", {**_LLAMA, "head_dim": 24, "rope_parameters": _MINISTRAL_ROPE}),
    "mistral-window": ("Mistral", {**_LLAMA, "sliding_window": 16}),
    "ministral-window": (
        "Ministral", {**_LLAMA, "head_dim": 24, "sliding_window": 9, "layer_types": _LOCAL_GLOBAL_LOCAL}
    ),
    "qwen2-window": (
        "Qwen2", {**_LLAMA, "use_sliding_window": True, "sliding_window": 10, "layer_types": _LOCAL_GLOBAL_LOCAL}
    ),
    "olmo3-window": (
        "Olmo3", {**_LLAMA, "sliding_window": 12, "layer_types": _LOCAL_GLOBAL_LOCAL, "rope_parameters": _OLMO3_ROPE}
    ),
    "exaone4": ("Exaone4", {**_LLAMA, "sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "exaone4-window": ("Exaone4", {**_LLAMA, "sliding_window": 12, "layer_types": _LOCAL_GLOBAL_LOCAL}),
    "granite": (
        "Granite", {**_LLAMA, "embedding_multiplier": 3.0, "attention_multiplier": 0.4, "residual_multiplier": 0.7,
                    "logits_scaling": 5.0}
    ),
    "gemma2": ("Gemma2", {**_LLAMA, "head_dim": 24, "query_pre_attn_scalar": 4, "sliding_window": 9}),
    "gemma3": ("Gemma3Text", {**_LLAMA, **_GEMMA3}),
    "qwen2-moe": ("Qwen2Moe", {**_LLAMA, **_EXPERTS, "shared_expert_intermediate_size": 64}),
    "qwen3-moe": ("Qwen3Moe", {**_LLAMA, **_EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {**_LLAMA, "num_local_experts": 4}),
    "gpt-oss-window": (
        "GptOss", {**_LLAMA, "head_dim": 24, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 12,
                   "layer_types": _LOCAL_GLOBAL_LOCAL, "rope_parameters": {**_YARN_ROPE, "truncate": False},
                   "swiglu_limit": 3.0}
    ),
    "gemma4": ("Gemma4Text", {**_LLAMA, **_GEMMA4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True}),
    "gemma4-moe": (
        "Gemma4Text", {**_LLAMA, **_GEMMA4, "hidden_size_per_layer_input": 0, "enable_moe_block": True,
                       "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32}
    ),
    "gemma4-shared": ("Gemma4Text", {**_LLAMA, **_GEMMA4, **_GEMMA4_SHARED}),
    "deepseek2": ("DeepseekV2", {**_LLAMA, **_LATENT, "q_lora_rank": None, "routed_scaling_factor": 1.5}),
    "deepseek2-groups": ("DeepseekV2", {**_LLAMA, **_LATENT, **_GROUPS, "topk_method": "group_limited_greedy"}),
    "deepseek3": ("DeepseekV3", {**_LLAMA, **_LATENT, **_GROUPS}),
    "deepseek3-rope-yarn": ("DeepseekV3", {**_LLAMA, **_LATENT, **_GROUPS, "rope_parameters": _DEEPSEEK_ROPE}),
    "glm4_moe": ("Glm4Moe", {**_LLAMA, **_GLM4_MOE}),
    "glm4_moe_lite": ("Glm4MoeLite", {**_LLAMA, **_LATENT, "n_shared_experts": 1}),
    "qwen3_5": ("Qwen3_5Text", {**_LLAMA, **_HYBRID}),
    "qwen3_5-moe": (
        "Qwen3_5MoeText", {**_LLAMA, **_HYBRID, **_EXPERTS, "shared_expert_intermediate_size": 64}
    ),
    "qwen3_next": (
        "Qwen3Next", {**_LLAMA, **_HYBRID, **_EXPERTS, "shared_expert_intermediate_size": 64, "mlp_only_layers": [2]}
    ),
    "lfm2": ("Lfm2", {**_LLAMA, **_LFM2, "block_auto_adjust_ff_dim": False}),
    "lfm2-biases": (
        "Lfm2", {**_LLAMA, **_LFM2, "conv_bias": True, "block_multiple_of": 16, "tie_word_embeddings": True}
    ),
    "lfm2-moe": ("Lfm2Moe", {**_LLAMA, **_LFM2, **_EXPERTS, "num_dense_layers": 1}),
    "granite4": ("GraniteMoeHybrid", {**_LLAMA, **_GRANITE4, "num_local_experts": 0, "mamba_n_groups": 2}),
    "granite4-moe": (
        "GraniteMoeHybrid", {**_LLAMA, **_GRANITE4, "num_local_experts": 8, "num_experts_per_tok": 3,
                             "position_embedding_type": "rope"}
    ),
    "gpt2": ("GPT2", _GPT2),
    "opt": ("OPT", _OPT),
    "opt-350m": ("OPT", {**_OPT, "word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    "opt-galactica": (
        "OPT", {**_OPT, "activation_function": "gelu", "enable_bias": False, "layer_norm_elementwise_affine": False}
    ),
}  # fmt: skip

#: With states beside KV.
HYBRIDS = ("qwen3_5", "qwen3_5-moe", "qwen3_next", "lfm2", "lfm2-biases", "lfm2-moe", "granite4", "granite4-moe")
ARCHITECTURES = tuple(_VARIANTS)
KINDS = (
    "llama",
    "gpt2",
    "opt-350m",
    "gemma4-shared",
    "gemma4-moe",
    "gpt-oss-window",
    "qwen3-moe",
    "deepseek3",
    "qwen3_5",
    "lfm2",
    "granite4-moe",
)
#: Of each kind of cache: keys and values, some layers' of a window or shared, latents, states.
CACHES = ("llama", "gemma4-shared", "deepseek3", "qwen3_5")

#: For tests of models: of every kind of arithmetic one is quick.
ONE_OF_EACH_KIND = quick(KINDS, ARCHITECTURES)
#: For tests of schedules, whatever a model computes.
ONE_OF_EACH_CACHE = quick(CACHES, ARCHITECTURES)
STD = 0.3
_made = tempfile.TemporaryDirectory(prefix="quire-checkpoints-")  # checkpoints that tests get copies of
# Norms of outputs, so that the residual stream is more than the embedding; others are stored less one.
_GEMMA_FACTORS = {"post_attention": 4, "post_feedforward": 1, "norm": 0, "embed_tokens": 0.1}
_LATENT_FACTORS = {"o_proj": 2.5}
# Slow and fast states, but not so fast that chunks lose digits; and sharp attention, since its gate halves it.
_HYBRID_FACTORS = {"linear_attn.norm": 1, "A_log": 6, "q_norm": 4, "norm": 0, "o_proj": 3, "embed_tokens": 0.5}
# Convolutions, products of three inputs, would hide the attention to earlier tokens.
_LFM2_FACTORS = {
    "bias": 0.3, "q_layernorm": 6, "self_attn.out_proj": 4, "v_proj": 3, "conv.in_proj": 0.4, "conv.conv": 2,
    "embed_tokens": 0.1,
}  # fmt: skip
_GRANITE4_FACTORS = {
    "A_log": 6, "mamba.out_proj": 2, "mamba.D": 0.5, "q_proj": 0.4, "v_proj": 2, "o_proj": 3, "embed_tokens": 0.3,
}  # fmt: skip
FACTORS = {  # factors on STD, or the mean of norms, by parts of parameter names
    "GPT2": {"bias": 0.1, "c_attn.weight": 1.5, "mlp.c_fc.weight": 0.3, "mlp.c_proj.weight": 0.3},
    "DeepseekV2": _LATENT_FACTORS,
    "DeepseekV3": _LATENT_FACTORS,
    "Gemma2": _GEMMA_FACTORS,
    "Gemma3Text": _GEMMA_FACTORS,
    "Glm4Moe": {"q_norm": 3, "o_proj": 2.5},
    "Glm4MoeLite": _LATENT_FACTORS,
    "Gemma4Text": {
        "q_norm": 1.8,
        "post_feedforward_layernorm_": 1,
        "post_attention": 4,
        "norm": 1,
        "embed_tokens": 0.1,
    },
    "GptOss": {"sinks": 5},
    **dict.fromkeys(("Qwen3_5Text", "Qwen3_5MoeText", "Qwen3Next"), _HYBRID_FACTORS),
    **dict.fromkeys(("Lfm2", "Lfm2Moe"), _LFM2_FACTORS),
    "GraniteMoeHybrid": _GRANITE4_FACTORS,
    "OPT": {"bias": 0.1, "q_proj.weight": 2, "k_proj.weight": 2, "fc1.weight": 0.3, "fc2.weight": 0.3, "project_in": 3},
}


def make_config(name: str, **overrides: Any) -> transformers.PretrainedConfig:
    """Return the variant's config; `overrides` replace its fields."""
    family, fields = _VARIANTS[name]
    fields = {**fields, **overrides}
    if "vocab_size_per_layer_input" in fields:
        fields["vocab_size_per_layer_input"] = fields["vocab_size"]
    return getattr(transformers, f"{family}Config")(**fields)


def make_reference(name: str, seed: int = 0, **overrides: Any) -> transformers.PreTrainedModel:
    """Return the variant as a transformers model in float32, in eval mode."""
    factors = FACTORS.get(_VARIANTS[name][0], {})
    config = make_config(name, **overrides)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomize(model, factors)
    return model.eval()


def randomize(model: torch.nn.Module, factors: Mapping[str, float] = MappingProxyType({})) -> None:
    """Draw weights that tell right from wrong. `factors` on STD are by parts of parameter names."""
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            factor = next((f for part, f in factors.items() if part in parameter_name), 1.0)
            if parameter.dim() == 1 and parameter_name.endswith("weight"):  # a norm
                parameter.normal_(factor, 0.1)
            else:
                parameter.normal_(0.0, STD * factor)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.normal_(0.0, STD)


def make_checkpoint(name: str, directory: str | Path, seed: int = 0, **overrides: Any) -> Path:
    """Save the variant's checkpoint without a tokenizer to `directory` and return it."""
    made, key = _made.name, f"{name} {seed} {sorted(overrides.items())}"
    saved = Path(made, hashlib.sha256(key.encode()).hexdigest())
    if not saved.exists():
        make_reference(name, seed, **overrides).save_pretrained(saved)
        if name == "internlm3":  # transformers saves it as Llama
            config = json.loads((saved / "config.json").read_text())
            config |= {"architectures": ["InternLM3ForCausalLM"], "qkv_bias": True, "bias": True}
            del config["attention_bias"], config["mlp_bias"]
            (saved / "config.json").write_text(json.dumps(config))
    return Path(shutil.copytree(saved, directory, dirs_exist_ok=True))


def make_multimodal(text: Path, directory: Path) -> Path:
    """Save a Gemma 3 as the text part of a multimodal checkpoint to `directory` and return it."""
    directory.mkdir()
    config: dict[str, Any] = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}
    config["text_config"] = json.loads((text / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config))
    tensors = load_file(text / "model.safetensors").items()
    own = {name.replace("model.", "model.language_model.", 1): each for name, each in tensors}
    save_file(own | {"model.vision_tower.layers.2.weight": torch.zeros(9)}, directory / "model.safetensors")
    return directory
