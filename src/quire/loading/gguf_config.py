"""The config of a GGUF file, as the config.json of the same model states it."""

from __future__ import annotations

import functools
import math
import struct
import tomllib
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from quire.gguf_header import GGUFHeader, gguf_parts, read_gguf_header, shortest
from quire.loading.errors import ModelLoadError, unreadable
from quire.models.encodings import BY_NUMBER
from quire.models.model_config import UnsupportedModelError

_NAMES = Path(__file__).with_name("gguf_names.toml")
#: Of Llama 3.1 to 3.3, whose GGUF files state the factors of single frequencies only.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_MAX_FACTORS = 4096
_MODEL_TYPES = {"mistral3": "ministral3", "gemma3": "gemma3_text", "qwen35": "qwen3_5_text"}
_MODEL_TYPES |= {"qwen35moe": "qwen3_5_moe_text", "qwen3next": "qwen3_next", "lfm2moe": "lfm2_moe"}
_MODEL_TYPES |= {"glm4moe": "glm4_moe", "gemma4": "gemma4_text", "gpt-oss": "gpt_oss"}
_MODEL_TYPES |= {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
_HYBRIDS = ("qwen35", "qwen35moe", "qwen3next")
_KV = ("key", "value")
#: Groups of experts and chosen ones, by experts of DeepSeek-V2 and V3, whose older files do not state them.
_GROUPS = {160: (8, 3), 256: (8, 4)}


@functools.cache
def _names() -> dict[str, dict[str, str]]:
    """Return names in config.json by those in GGUF files: of architectures, fields, and fields of RoPE's scaling."""
    return tomllib.loads(_NAMES.read_text(encoding="utf-8"))


def read_gguf(path: Path) -> list[GGUFHeader]:
    """Read the header of a file, or of all parts of a split one. Raises ModelLoadError."""
    try:
        return [read_gguf_header(part) for part in gguf_parts(path)]
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise ModelLoadError(str(error)) from None


def gguf_config(header: GGUFHeader) -> dict[str, Any]:
    """Translate a file's metadata to a config.json. Raises ModelLoadError or UnsupportedModelError."""
    try:
        return _translate(header, header.values["general.architecture"])
    except (ModelLoadError, UnsupportedModelError):
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, OSError, struct.error) as error:
        raise ModelLoadError(f"{header.path} has damaged metadata ({error}); download it again") from None


def _translate(header: GGUFHeader, prefix: str) -> dict[str, Any]:
    if prefix not in _names()["architectures"]:
        return {"architectures": [f"{prefix} as a GGUF file"]}
    values = header.values
    tensors = [tensor for part in read_gguf(header.path) for tensor in part.tensors]
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    matrices = {BY_NUMBER.get(tensor.type) for tensor in tensors if len(tensor.shape) > 1}
    ids = [values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    config: dict[str, Any] = {
        "architectures": [_names()["architectures"][prefix]],
        "model_type": _MODEL_TYPES.get(prefix, prefix),
        "vocab_size": shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "attention_out_bias": "blk.0.attn_output.bias" in shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in shapes,
        "dtype": "float32" if matrices == {"F32"} else "float16" if matrices <= {"F16", "F32"} else "bfloat16",
        "eos_token_id": [each for each in dict.fromkeys(ids) if each is not None],
        "sliding_window": None,
    }
    if scaling := _rope_scaling(header, prefix):  # an empty one would replace rope_parameters in transformers
        config["rope_scaling"] = scaling
    for name, key in _names()["fields"].items():
        value = values.get(f"{prefix}.{name}")
        if isinstance(value, list) and key == "sliding_window_pattern":
            config["layer_types"] = ["sliding_attention" if slides else "full_attention" for slides in value]
        elif value not in (None, 0):
            config[key] = value[0] if isinstance(value, list) and value.count(value[0]) == len(value) else value
    if extra := values.get(f"{prefix}.nextn_predict_layers"):
        config["num_hidden_layers"] -= extra
    head_dim = gguf_head_dim(header)
    if (rotated := values.get(f"{prefix}.rope.dimension_count")) is not None:
        config["partial_rotary_factor"] = rotated / head_dim
    of_hidden = config["hidden_size"] // config["num_attention_heads"]
    config["query_pre_attn_scalar"] = of_hidden if config["num_hidden_layers"] in (46, 62) else head_dim  # Gemma 27B
    if "num_experts" in config:
        norms = prefix in ("qwen3moe", *_HYBRIDS)
        config = {"norm_topk_prob": norms, **config, "num_local_experts": config["num_experts"]}
        if prefix == "llama":
            config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    if prefix == "olmo2" and config["sliding_window"]:
        config |= {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3"}
    if prefix == "exaone4" and config["sliding_window"] is None:
        config["layer_types"] = ["full_attention"] * config["num_hidden_layers"]
    of_prefix = _OF_PREFIX.get(prefix)
    return config | of_prefix(header, config, shapes) if of_prefix else config


def _deepseek2(header: GGUFHeader, config: dict[str, Any], tensors: Container[str]) -> dict[str, Any]:
    """Return the fields of DeepSeek-V2 and V3 and of GLM-4.7-Flash. Only V2 has no bias for the choice of experts."""
    values, last, kind = header.values, config["num_hidden_layers"] - 1, "deepseek2.attention"
    if f"{kind}.temperature_scale" in values:
        raise UnsupportedModelError(f"{header.path}: attention of Mistral Large 3 is not supported")
    is_v2, rope_dim = f"blk.{last}.exp_probs_b.bias" not in tensors, values["deepseek2.rope.dimension_count"]
    key_dim, value_dim = (values.get(f"{kind}.{name}_length_mla") or values[f"{kind}.{name}_length"] for name in _KV)
    groups, chosen = _GROUPS.get(config["num_experts"], (1, 1))
    groups, chosen = config.get("n_group", groups), config.get("topk_group", chosen)
    return {
        "architectures": ["DeepseekV2ForCausalLM" if is_v2 else "DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v2" if is_v2 else "deepseek_v3",
        "head_dim": rope_dim,
        "n_group": groups,
        "n_routed_experts": config["num_experts"],
        "num_key_value_heads": config["num_attention_heads"],
        "partial_rotary_factor": 1.0,
        "q_lora_rank": config.get("q_lora_rank"),
        "qk_nope_head_dim": key_dim - rope_dim,
        "qk_rope_head_dim": rope_dim,
        "scoring_func": "sigmoid" if values.get("deepseek2.expert_gating_func", 1 if is_v2 else 2) == 2 else "softmax",
        "topk_group": chosen,
        "topk_method": "noaux_tc" if not is_v2 else "group_limited_greedy" if groups > 1 else "greedy",
        "v_head_dim": value_dim,
    }


def _glm4_moe(header: GGUFHeader, config: dict[str, Any], tensors: Container[str]) -> dict[str, Any]:
    return {"n_routed_experts": config["num_experts"], "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors}


def _hybrid(header: GGUFHeader, config: dict[str, Any], tensors: Container[str]) -> dict[str, Any]:
    """Return the fields of layers with the gated delta rule. Old files of Qwen3-Next have its joint product."""
    inner = header.values[f"{header.values['general.architecture']}.ssm.inner_size"]
    linear = [f"blk.{i}.ssm_a" in tensors for i in range(config["num_hidden_layers"])]
    return {
        "layer_types": ["linear_attention" if each else "full_attention" for each in linear],
        "linear_inputs_apart": any(f"blk.{i}.attn_qkv.weight" in tensors for i, each in enumerate(linear) if each),
        "linear_value_head_dim": inner // config["linear_num_value_heads"],
    }


def _lfm2(header: GGUFHeader, config: dict[str, Any], tensors: Container[str]) -> dict[str, Any]:
    """Return the fields of LFM2. Its files state the inner size of its MLPs, and not that choices are normalized."""
    num_layers = config["num_hidden_layers"]
    attention = "sliding_attention" if config["sliding_window"] else "full_attention"
    convolves = [f"blk.{i}.shortconv.conv.weight" in tensors for i in range(num_layers)]
    return {
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv" if each else attention for each in convolves],
        "norm_eps": config["rms_norm_eps"],
        "norm_topk_prob": True,
        "num_dense_layers": header.values.get("lfm2moe.leading_dense_block_count", 0),
        "num_key_value_heads": _most_heads(config["num_key_value_heads"]),
        "use_expert_bias": f"blk.{num_layers - 1}.exp_probs_b.bias" in tensors,
    }


def _granite_hybrid(header: GGUFHeader, config: dict[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Granite 4. Its files mark RoPE as fine-tuned if it is used."""
    values, of_state = header.values, "granitehybrid.ssm"
    has_state = [f"blk.{i}.ssm_a" in tensors for i in range(config["num_hidden_layers"])]
    inner = "blk.0.ffn_up_shexp.weight" if "num_experts" in config else "blk.0.ffn_up.weight"
    return {
        "gate_and_up_apart": True,
        "layer_types": ["linear_attention" if each else "full_attention" for each in has_state],
        "mamba_conv_bias": any(f"blk.{i}.ssm_conv1d.bias" in tensors for i in range(len(has_state))),
        "mamba_d_conv": values[f"{of_state}.conv_kernel"],
        "mamba_d_head": values[f"{of_state}.inner_size"] // values[f"{of_state}.time_step_rank"],
        "mamba_d_state": values[f"{of_state}.state_size"],
        "mamba_n_groups": values[f"{of_state}.group_count"],
        "mamba_n_heads": values[f"{of_state}.time_step_rank"],
        "model_type": "granitemoehybrid",
        "num_key_value_heads": _most_heads(config["num_key_value_heads"]),
        "position_embedding_type": "rope" if values.get("granitehybrid.rope.scaling.finetuned") else "nope",
        "shared_intermediate_size": tensors[inner][0],
    }


def _most_heads(counts: int | list[int]) -> int:
    """Return the number of key and value heads of layers with attention; others have none."""
    return max(counts) if isinstance(counts, list) else counts


def _gemma4(header: GGUFHeader, config: dict[str, Any], tensors: Container[str]) -> dict[str, Any]:
    """Return the fields of Gemma 4, whose sliding and global layers differ in heads and in RoPE."""
    values, kinds = header.values, config["layer_types"]
    kv_heads, inner, head_dim = (
        config["num_key_value_heads"], config["intermediate_size"], values["gemma4.attention.key_length_swa"]
    )  # fmt: skip
    local_heads, global_heads = (
        kv_heads[kinds.index(kind)] if isinstance(kv_heads, list) and kind in kinds else kv_heads
        for kind in ("sliding_attention", "full_attention")
    )
    layers = [i for i, kind in enumerate(kinds) if kind == "full_attention" and f"blk.{i}.attn_k.weight" in tensors]
    factors = _floats(header, "rope_freqs.weight")  # beyond all turns for the pairs that do not turn
    if any(each != 1 and each < 1e29 for each in factors):
        raise UnsupportedModelError(f"{header.path}: rope_freqs.weight is not Gemma 4's scaling of RoPE")
    share = factors.count(1.0) / len(factors) if factors else 1.0
    return {
        "attention_k_eq_v": not any(f"blk.{i}.attn_v.weight" in tensors for i in layers),
        "enable_moe_block": "num_experts" in config,
        "global_head_dim": config["head_dim"],
        "head_dim": head_dim,
        "hidden_size_per_layer_input": config.get("hidden_size_per_layer_input", 0),
        "intermediate_size": inner[0] if isinstance(inner, list) else inner,
        "num_global_key_value_heads": global_heads,
        "num_key_value_heads": local_heads,
        "partial_rotary_factor": values.get("gemma4.rope.dimension_count_swa", head_dim) / head_dim,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": config["rope_theta"]
            },
            "sliding_attention": {"rope_theta": config["rope_local_base_freq"]},
        },
        "top_k_experts": config.get("num_experts_per_tok"),
        "use_double_wide_mlp": isinstance(inner, list),
        "vocab_size_per_layer_input": config["vocab_size"],
    }  # fmt: skip


_OF_PREFIX: dict[str, Callable[[GGUFHeader, dict[str, Any], dict[str, tuple[int, ...]]], dict[str, Any]]] = {
    "deepseek2": _deepseek2,
    "gemma4": _gemma4,
    "glm4moe": _glm4_moe,
    "granitehybrid": _granite_hybrid,
    **dict.fromkeys(("lfm2", "lfm2moe"), _lfm2),
    **dict.fromkeys(_HYBRIDS, _hybrid),
}


def gguf_head_dim(header: GGUFHeader) -> int:
    """Return the size of a model's heads."""
    values = header.values
    prefix = values["general.architecture"]
    stated = values.get(f"{prefix}.attention.key_length")
    return stated or values[f"{prefix}.embedding_length"] // values[f"{prefix}.attention.head_count"]


def _rope_scaling(header: GGUFHeader, prefix: str) -> dict[str, Any]:
    """Return the entry of config.json. In a GGUF file, factors of single frequencies are tensors."""
    values = header.values
    stated = {key: values.get(f"{prefix}.rope.scaling.{name}") for name, key in _names()["scaling"].items()}
    scaling = {key: value for key, value in stated.items() if value not in (None, "none")}
    if prefix == "mistral3":
        scaling["llama_4_scaling_beta"] = values.get(f"{prefix}.attention.temperature_scale")
        scaling["mscale"] = scaling.get("mscale_all_dim")
    if prefix == "deepseek2" and "mscale_all_dim" in scaling:  # files state a tenth
        scaling["mscale"] = scaling["mscale_all_dim"] = round(10 * scaling["mscale_all_dim"], 6)
    if prefix == "gpt-oss":
        scaling["truncate"] = False  # as in transformers; llama.cpp truncates
    if long := _floats(header, "rope_factors_long.weight"):
        return scaling | {
            "rope_type": "longrope", "long_factor": long, "short_factor": _floats(header, "rope_factors_short.weight")
        }  # fmt: skip
    if prefix.startswith("gemma") or not (factors := _floats(header, "rope_freqs.weight")):
        return scaling
    theta, size, factor = values.get(f"{prefix}.rope.freq_base", 10000.0), 2 * len(factors), round(max(factors), 3)
    for i, found in enumerate(factors):
        turns = _LLAMA3["original_max_position_embeddings"] / (2 * math.pi * theta ** (2 * i / size))
        share = min(1.0, max(0.0, (turns - 1) / 3))  # of the unchanged frequency
        if abs(found * ((1 - share) / factor + share) - 1) > 1e-3:
            raise UnsupportedModelError(f"{header.path}: rope_freqs.weight is not Llama 3's scaling of RoPE")
    return {**_LLAMA3, "rope_type": "llama3", "factor": factor}


def _floats(header: GGUFHeader, name: str) -> list[float]:
    """Read a small tensor of float32; nothing without one."""
    for part in read_gguf(header.path):
        for tensor in part.tensors:
            if tensor.name == name and BY_NUMBER.get(tensor.type) == "F32" and math.prod(tensor.shape) <= _MAX_FACTORS:
                with part.path.open("rb") as file:
                    file.seek(tensor.start)
                    values = struct.unpack(f"<{math.prod(tensor.shape)}f", file.read(4 * math.prod(tensor.shape)))
                return [shortest(each) for each in values]
    return []
