"""Write checkpoints as GGUF files, as llama.cpp's converter does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from encoded_rows import random_rows

ARCHITECTURES = {
    "DeepseekV2ForCausalLM": "deepseek2",
    "DeepseekV3ForCausalLM": "deepseek2",
    "Exaone4ForCausalLM": "exaone4",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma4ForCausalLM": "gemma4",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4moe",
    "Glm4MoeLiteForCausalLM": "deepseek2",
    "GptOssForCausalLM": "gpt-oss",
    "GraniteForCausalLM": "granite",
    "GraniteMoeHybridForCausalLM": "granitehybrid",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2moe",
    "LlamaForCausalLM": "llama",
    "Ministral3ForCausalLM": "mistral3",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "SeedOssForCausalLM": "seed_oss",
    "SmolLM3ForCausalLM": "smollm3",
}
PAIRED = ("granite", "granitehybrid", "llama", "mistral3", "smollm3")
FLOATS = {"F32": np.float32, "F16": np.float16}
Choose = Callable[[str], str]  #: the encoding of a matrix, by its name in the GGUF file


def write_gguf(
    directory: Path,
    path: Path,
    encoding: str | Choose = "F32",
    *,
    split: int = 0,
    change: dict[str, Any] | None = None,
    old: bool = False,
) -> Path:
    """Write a checkpoint's config, weights and tokenizer, in several files of `split` tensors; `change` overwrites
    metadata. `old` files have fewer splits of tensors."""
    config = json.loads((directory / "config.json").read_text())
    architecture = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split, small_first_shard=split > 0)
    _write_config(writer, config, old)
    if (directory / "tokenizer.json").is_file():
        _write_tokenizer(writer, directory)
    names = gguf.get_tensor_name_map(
        next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), config["num_hidden_layers"]
    )
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = load_file(directory / "model.safetensors")
    tensors = split_pairs(tensors) if architecture == "gpt-oss" else stack_experts(tensors)
    if architecture == "deepseek2" and not old:
        tensors = split_heads(tensors, config)
    if "linear_num_key_heads" in config:
        tensors = reorder_heads(tensors, config, old)
    if architecture == "granitehybrid":
        tensors = split_inputs(tensors, config)
    for name, tensor in tensors.items():
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace("dt_bias", "dt_proj.bias")
        name, suffixes = name.replace("expert_bias", "expert_bias.bias"), (".weight", ".bias")
        stored = names.get_name(name, suffixes) or names.get_name(name.removeprefix("model."), suffixes)
        if match := re.fullmatch(r"model\.layers\.(\d+)\.router\.(per_expert_)?scale", name):
            stored = f"blk.{match[1]}.ffn_{'down_exps' if match[2] else 'gate_inp'}.scale"
        assert stored is not None
        stored += (
            ".weight"
            if name.endswith(("layer_scalar", ".sinks", ".experts.gate_up_proj", ".experts.down_proj"))
            else ""
        )
        values = tensor.float().numpy()
        part = stored.split(".")[-2]
        is_shifted = architecture in ("gemma2", "gemma3") or "linear_num_key_heads" in config
        if is_shifted and stored.endswith("norm.weight") and "ssm_norm" not in stored:
            values = values + 1
        if architecture in PAIRED and part in heads:
            values = by_pairs(values, heads[part])
        if architecture == "granitehybrid" and part == "ssm_norm":
            values = values.reshape(config["mamba_n_groups"], -1)
        _add(writer, stored, values, encoding if isinstance(encoding, str) else encoding(stored))
    if (scaling := config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        _add(writer, "rope_freqs.weight", _llama3_factors(config, scaling), "F32")
    if architecture == "gemma4":
        _add(writer, "rope_freqs.weight", _proportional_factors(config), "F32")
    for kind in ("long", "short") if scaling.get("rope_type") == "longrope" else ():
        _add(writer, f"rope_factors_{kind}.weight", np.array(scaling[f"{kind}_factor"], np.float32), "F32")
    for name, value in (change or {}).items():
        writer.kv_data[0].pop(name, None)
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value)) if value != [] else None
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if not split else sorted(path.parent.glob(f"{path.stem}-0*.gguf"))[0]


def stack_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Stack the tensors of a layer's experts, [experts, rows, columns]."""
    stacks: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        parts = name.split(".experts.")
        if len(parts) == 1 or not parts[1][0].isdigit():
            stacks[name] = {-1: tensor}
        else:
            index, _, rest = parts[1].partition(".")
            stacks.setdefault(f"{parts[0]}.experts.{rest}", {})[int(index)] = tensor
    return {
        name: stack[-1] if -1 in stack else torch.stack([stack[i] for i in sorted(stack)])
        for name, stack in stacks.items()
    }


def split_heads(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Separate heads' keys and values, and transpose keys."""
    found: dict[str, torch.Tensor] = {}
    sizes = [config["qk_nope_head_dim"], config["v_head_dim"]]
    for name, tensor in tensors.items():
        if "kv_b_proj" not in name:
            found[name] = tensor
            continue
        keys, values = tensor.reshape(-1, sum(sizes), config["kv_lora_rank"]).split(sizes, 1)
        found |= {name.replace("kv_b", "k_b"): keys.mT, name.replace("kv_b", "v_b"): values}
    return found


def reorder_heads(tensors: dict[str, torch.Tensor], config: dict[str, Any], old: bool) -> dict[str, torch.Tensor]:
    """Order value heads of Qwen3.5 by their place beside a key head, separate the joint product of Qwen3-Next unless
    the file is `old`, and take the exponential of A_log."""
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
    keys, values, key_dim, value_dim = (config[f"linear_{name}"] for name in names)
    is_grouped, inner = config["model_type"] == "qwen3_next", values // keys * value_dim
    found: dict[str, torch.Tensor] = {}

    def tiled(tensor: torch.Tensor, first: int = 0, size: int = 1) -> torch.Tensor:
        heads = tensor[first:].reshape(keys, -1, size, *tensor.shape[1:]).transpose(0, 1)
        return tensor if is_grouped else torch.cat((tensor[:first], heads.reshape(tensor[first:].shape)))

    for name, tensor in tensors.items():
        kind = name.partition(".linear_attn.")[2].removesuffix(".weight")
        if kind == "in_proj_qkvz" and not old:
            parts = tensor.reshape(keys, -1, tensor.shape[1]).split([key_dim, key_dim, inner, inner], 1)
            *qkv, z = (part.flatten(0, 1) for part in parts)
            found |= {name.replace("qkvz", "qkv"): torch.cat(qkv), name.replace("qkvz", "z"): z}
            continue
        if kind in ("in_proj_qkv", "conv1d"):
            tensor = tiled(tensor.squeeze(), 2 * keys * key_dim, value_dim)
        elif kind == "in_proj_z":
            tensor = tiled(tensor, 0, value_dim)
        elif kind == "out_proj":
            tensor = tiled(tensor.T, 0, value_dim).T
        elif kind in ("in_proj_a", "in_proj_b", "dt_bias", "A_log"):
            tensor = tiled(tensor)
        found[name] = -tensor.exp() if kind == "A_log" else tensor
    return found


def split_inputs(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Separate gate and up of Granite 4's MLPs, and take the exponential of A_log."""
    shared = "mlp.shared_expert" if config["num_local_experts"] else "mlp"
    parts = {"shared_mlp": shared, "block_sparse_moe": "mlp.experts"}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.removesuffix(".weight").rpartition(".")
        prefix, _, part = stem.rpartition(".")
        if kind == "input_linear":
            gate, up = tensor.chunk(2, -2)
            found |= {f"{prefix}.{parts[part]}.gate_proj.weight": gate, f"{prefix}.{parts[part]}.up_proj.weight": up}
        elif kind == "output_linear":
            found[f"{prefix}.{parts[part]}.down_proj.weight"] = tensor
        elif kind in ("A_log", "D"):
            found[name] = (tensor if kind == "D" else -tensor.exp())[:, None]
        else:
            found[name] = tensor.squeeze()
    return found


def split_pairs(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Separate gate and up in gpt-oss's stacks of experts, and transpose matrices."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.replace("_bias", ".bias").partition("_proj")
        if ".experts." not in name:
            found[name] = tensor
            continue
        tensor = tensor if kind else tensor.mT
        parts = ("gate", "up") if stem.endswith("gate_up") else ("down",)
        for i, part in enumerate(parts):
            found[f"{stem.removesuffix('gate_up').removesuffix('down')}{part}_proj{kind or '.weight'}"] = tensor[
                :, i :: len(parts)
            ]
    return found


def by_pairs(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Order heads' rows for llama.cpp's rotation of neighbours."""
    shape = (num_heads, 2, len(values) // num_heads // 2, *values.shape[1:])
    return values.reshape(shape).swapaxes(1, 2).reshape(values.shape)


def encode(values: np.ndarray, encoding: str) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """Encode rows. Encodings that the gguf package only decodes get random blocks with small scales."""
    kind = gguf.GGMLQuantizationType[encoding]
    try:
        return gguf.quants.quantize(values, kind), kind
    except NotImplementedError:
        rows = random_rows(encoding, int(np.prod(values.shape[:-1])), values.shape[-1], seed=len(values))
        return rows.reshape(*values.shape[:-1], -1), kind


def _add(writer: gguf.GGUFWriter, name: str, values: np.ndarray, encoding: str) -> None:
    if "ssm_a" in name or "ssm_d" in name or "ssm_norm" in name or "conv" in name.split(".")[-2]:
        writer.add_tensor(name, values.squeeze() if "conv" in name else values)
    elif values.ndim == 1 or len(values) == 1 or name.endswith(".bias"):  # shared_expert_gate too
        writer.add_tensor(name, np.atleast_1d(values.squeeze()))
    elif encoding in FLOATS:
        writer.add_tensor(name, values.astype(FLOATS[encoding]))
    elif encoding == "BF16":
        halves = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
        writer.add_tensor(name, halves.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        data, kind = encode(values, encoding)
        writer.add_tensor(name, data, raw_dtype=kind)


def _llama3_factors(config: dict[str, Any], scaling: dict[str, Any]) -> np.ndarray:
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * scaling["rope_theta"] ** (i / dim)
        turns = scaling["original_max_position_embeddings"] / wavelength
        low, high, factor = (scaling[name] for name in ("low_freq_factor", "high_freq_factor", "factor"))
        smooth = (turns - low) / (high - low)
        factors.append(1.0 if turns > high else factor if turns < low else 1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _proportional_factors(config: dict[str, Any]) -> np.ndarray:
    pairs = global_head_dim(config) // 2
    share = config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    return np.where(np.arange(pairs) < int(pairs * share), 1.0, 1e30).astype(np.float32)


def global_head_dim(config: dict[str, Any]) -> int:
    """Return the size of heads in Gemma 4's global layers, as transformers saves it."""
    return max(each["head_dim"] for each in config["per_layer_config"].values())


def _gemma4(config: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between the layers of Gemma 4."""
    num_layers, inner, shared = (
        config[name] for name in ("num_hidden_layers", "intermediate_size", "num_kv_shared_layers")
    )
    size, kv_heads, layers = global_head_dim(config), config["num_key_value_heads"], config["per_layer_config"]
    all_heads = [layers.get(str(i), {}).get("num_key_value_heads", kv_heads) for i in range(num_layers)]
    is_wide = [config["use_double_wide_mlp"] and i >= num_layers - shared for i in range(num_layers)]
    return {
        "add_shared_kv_layers": shared,
        "add_embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "add_key_length": size,
        "add_value_length": size,
        "add_key_length_swa": config["head_dim"],
        "add_value_length_swa": config["head_dim"],
        "add_rope_dimension_count": size,
        "add_rope_dimension_count_swa": config["head_dim"],
        "add_head_count_kv": all_heads if set(all_heads) != {kv_heads} else kv_heads,
        "add_feed_forward_length": [inner * (1 + wide) for wide in is_wide] if any(is_wide) else inner,
        "add_expert_used_count": config.get("top_k_experts"),
    }


def _deepseek2(config: dict[str, Any], old: bool) -> dict[str, Any]:
    rank, rope_dim, value_dim = (config[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim"))
    key_dim, all_dim = rope_dim + config["qk_nope_head_dim"], config["rope_parameters"].get("mscale_all_dim")
    has_bias = config["model_type"] != "deepseek_v2"
    written = _routed(config, has_gating=has_bias and not old) | {
        "add_q_lora_rank": config["q_lora_rank"],
        "add_kv_lora_rank": rank,
        "add_rope_dimension_count": rope_dim,
        "add_rope_scaling_yarn_log_mul": all_dim and 0.1 * all_dim,
    }
    if old:
        return written | {"add_key_length": key_dim, "add_value_length": value_dim}
    written |= {"add_head_count_kv": 1, "add_key_length": rank + rope_dim, "add_value_length": rank}
    return written | {"add_key_length_mla": key_dim, "add_value_length_mla": value_dim}


def _routed(config: dict[str, Any], *, has_gating: bool) -> dict[str, Any]:
    return {
        "add_leading_dense_block_count": config["first_k_dense_replace"],
        "add_expert_count": config["n_routed_experts"],
        "add_expert_group_count": config["n_group"],
        "add_expert_group_used_count": config["topk_group"],
        "add_expert_shared_count": config["n_shared_experts"],
        "add_expert_weights_scale": config["routed_scaling_factor"],
        "add_expert_weights_norm": config["norm_topk_prob"] or None,
        "add_expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID if has_gating else None,
    }


def _hybrid(config: dict[str, Any]) -> dict[str, Any]:
    third, rest = divmod(int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]) // 2, 3)
    return {
        "add_full_attention_interval": config["layer_types"].index("full_attention") + 1,
        "add_rope_dimension_sections": [third + rest, third, third, 0],  # of M-RoPE
        "add_ssm_conv_kernel": config["linear_conv_kernel_dim"],
        "add_ssm_state_size": config["linear_key_head_dim"],
        "add_ssm_group_count": config["linear_num_key_heads"],
        "add_ssm_time_step_rank": config["linear_num_value_heads"],
        "add_ssm_inner_size": config["linear_value_head_dim"] * config["linear_num_value_heads"],
    }


def _lfm2(config: dict[str, Any]) -> dict[str, Any]:
    heads, is_moe = config["num_key_value_heads"], config["model_type"] == "lfm2_moe"
    return {
        "add_head_count_kv": [heads if kind != "conv" else 0 for kind in config["layer_types"]],
        "add_vocab_size": config["vocab_size"],
        "add_shortconv_l_cache": config["conv_L_cache"],
        "add_leading_dense_block_count": config.get("num_dense_layers"),
        "add_expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID if is_moe else None,
    }


def _granite4(config: dict[str, Any]) -> dict[str, Any]:
    heads, num_experts = config["num_key_value_heads"], config["num_local_experts"]
    return {
        "add_head_count_kv": [heads if kind == "full_attention" else 0 for kind in config["layer_types"]],
        "add_context_length": 2**20,
        "add_rope_scaling_finetuned": config["position_embedding_type"] == "rope",
        "add_ssm_conv_kernel": config["mamba_d_conv"],
        "add_ssm_state_size": config["mamba_d_state"],
        "add_ssm_group_count": config["mamba_n_groups"],
        "add_ssm_time_step_rank": config["mamba_n_heads"],
        "add_ssm_inner_size": config["mamba_expand"] * config["hidden_size"],
        "add_expert_shared_feed_forward_length": config["shared_intermediate_size"],
        "add_expert_used_count": config["num_experts_per_tok"] if num_experts else 0,
    }


def _write_config(writer: gguf.GGUFWriter, config: dict[str, Any], old: bool) -> None:
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    written: dict[str, Any] = {
        "add_context_length": config["max_position_embeddings"],
        "add_embedding_length": config["hidden_size"],
        "add_block_count": config["num_hidden_layers"],
        "add_feed_forward_length": config["intermediate_size"],
        "add_head_count": config["num_attention_heads"],
        "add_head_count_kv": config["num_key_value_heads"],
        "add_key_length": config.get("head_dim"),
        "add_value_length": config.get("head_dim"),
        "add_layer_norm_rms_eps": config.get("rms_norm_eps", config.get("norm_eps")),
        "add_rope_freq_base": rope["rope_theta"],
        "add_rope_dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1)),
        "add_rope_scaling_orig_ctx_len": rope.get("original_max_position_embeddings"),
        "add_rope_scaling_yarn_log_mul": rope.get("mscale_all_dim"),
        "add_attn_temperature_scale": rope.get("llama_4_scaling_beta"),
        "add_sliding_window": config.get("sliding_window"),
        "add_attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "add_final_logit_softcapping": config.get("final_logit_softcapping"),
        "add_attention_scale": config.get("attention_multiplier"),
        "add_embedding_scale": config.get("embedding_multiplier"),
        "add_residual_scale": config.get("residual_multiplier"),
        "add_logit_scale": config.get("logits_scaling"),
        "add_expert_count": config.get("num_experts", config.get("num_local_experts")),
        "add_expert_used_count": config.get("num_experts_per_tok"),
        "add_expert_feed_forward_length": config.get("moe_intermediate_size"),
        "add_expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
    }
    if "per_layer_config" in config:
        written |= _gemma4(config)
    if "kv_lora_rank" in config:
        written |= _deepseek2(config, old)
    if config["model_type"] == "glm4_moe":
        written |= _routed(config, has_gating=True)
    if "linear_num_key_heads" in config:
        written |= _hybrid(config)
    if "conv_L_cache" in config:
        written |= _lfm2(config)
    if "mamba_n_heads" in config:
        written |= _granite4(config)
    if config["model_type"] == "gpt_oss":
        written["add_expert_feed_forward_length"] = config["intermediate_size"]
    for add, value in written.items():
        if value is not None:
            getattr(writer, add)(value)
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if "sliding_attention" in config.get("layer_types", ()) and config["model_type"] != "gpt_oss":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])


def _write_tokenizer(writer: gguf.GGUFWriter, directory: Path) -> None:
    """Write a byte-level tokenizer that splits texts as GPT-2's."""
    spec = json.loads((directory / "tokenizer.json").read_text())
    config = json.loads((directory / "config.json").read_text())
    special = {token["id"] for token in spec["added_tokens"]}
    vocab = dict(sorted((index, token) for token, index in spec["model"]["vocab"].items()))
    vocab |= {token["id"]: token["content"] for token in spec["added_tokens"]}
    vocab = {index: vocab.get(index, f"[PAD{index}]") for index in range(config["vocab_size"])}
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocab.values()))
    writer.add_token_types([int(kinds.CONTROL if index in special else kinds.NORMAL) for index in vocab])
    merges = spec["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    eos = config["eos_token_id"]
    writer.add_eos_token_id(eos if isinstance(eos, int) else eos[0])
    writer.add_add_bos_token(False)
    if (template := directory / "chat_template.jinja").is_file():
        writer.add_chat_template(template.read_text())
