"""The config of a GGUF file, as the config.json of the same model states it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.gguf_header import GGUFHeader, gguf_parts, read_gguf_header, shortest
from quire.loading.errors import ModelLoadError, unreadable
from quire.models.encodings import BLOCKS, BY_NUMBER
from quire.models.model_config import UnsupportedModelError

#: Names in config.json by architecture.
_ARCHITECTURES = {
    "exaone4": "Exaone4", "gemma2": "Gemma2", "gemma3": "Gemma3", "gemma4": "Gemma4", "glm4": "Glm4",
    "gpt-oss": "GptOss", "granite": "Granite", "llama": "Llama", "mistral3": "Ministral3", "olmo2": "Olmo2",
    "phi3": "Phi3", "qwen2": "Qwen2", "qwen2moe": "Qwen2Moe", "qwen3": "Qwen3", "qwen3moe": "Qwen3Moe",
    "seed_oss": "SeedOss", "smollm3": "SmolLM3",
}  # fmt: skip
_FIELDS = {
    "block_count": ["num_hidden_layers"],
    "context_length": ["max_position_embeddings"],
    "embedding_length": ["hidden_size"],
    "feed_forward_length": ["intermediate_size"],
    "attention.head_count": ["num_attention_heads"],
    "attention.head_count_kv": ["num_key_value_heads"],
    "attention.layer_norm_rms_epsilon": ["rms_norm_eps"],
    "attention.sliding_window": ["sliding_window"],
    "attn_logit_softcapping": ["attn_logit_softcapping"],
    "final_logit_softcapping": ["final_logit_softcapping"],
    "rope.freq_base": ["rope_theta"],
    "expert_count": ["num_experts", "num_local_experts"],
    "expert_used_count": ["num_experts_per_tok"],
    "expert_feed_forward_length": ["moe_intermediate_size"],
    "expert_shared_feed_forward_length": ["shared_expert_intermediate_size"],
    "expert_weights_norm": ["norm_topk_prob"],
    "embedding_scale": ["embedding_multiplier"],
    "residual_scale": ["residual_multiplier"],
    "attention.scale": ["attention_multiplier"],
    "logit_scale": ["logits_scaling"],
}
_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "yarn_log_multiplier": "mscale_all_dim",
}
#: Of all Llama 3.1 to 3.3, and of their GGUF files, which state the factors only.
_LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
_LLAMA3_ARCHITECTURES = ("llama", "mistral3", "exaone4", "smollm3", "granite")
_MAX_FACTORS = 4096


def read_gguf(path: Path) -> GGUFHeader:
    """Read the header of a file, or of a split file's first part. Raises ModelLoadError."""
    return read_part(gguf_files(path)[0])


def gguf_files(path: Path) -> list[Path]:
    """Return a file, or all parts of a split one. Raises ModelLoadError."""
    try:
        return gguf_parts(path)
    except ValueError as error:
        raise ModelLoadError(str(error)) from None


def read_part(part: Path) -> GGUFHeader:
    """Read the header of one file. Raises ModelLoadError."""
    try:
        return read_gguf_header(part)
    except OSError as error:
        raise unreadable(part, error) from None
    except ValueError as error:
        raise ModelLoadError(str(error)) from None


def gguf_config(header: GGUFHeader) -> dict[str, Any]:
    """Translate a file's metadata to a config.json. Raises ModelLoadError for damaged metadata."""
    prefix = header.values.get("general.architecture")
    if not isinstance(prefix, str):
        raise ModelLoadError(f"{header.path} does not state its architecture; download it again")
    if prefix not in _ARCHITECTURES:
        return {"architectures": [f"{prefix} as a GGUF file"]}
    values = {name: header.get(f"{prefix}.{name}") for name in _FIELDS}
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    config: dict[str, Any] = {
        "architectures": [f"{_ARCHITECTURES[prefix]}ForCausalLM"],
        "model_type": "ministral3" if prefix == "mistral3" else prefix,
        "head_dim": gguf_head_dim(header),
        "vocab_size": shapes.get("token_embd.weight", (0,))[0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "attention_out_bias": "blk.0.attn_output.bias" in shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in shapes,
        "dtype": _dtype(header),
        "eos_token_id": _eos_token_ids(header),
        "bos_token_id": header.get("tokenizer.ggml.bos_token_id"),
        "rope_scaling": _rope_scaling(header, prefix, gguf_head_dim(header)),
    }
    for name, fields in _FIELDS.items():
        if (value := values[name]) not in (None, 0):
            same = isinstance(value, list) and value and value.count(value[0]) == len(value)
            config |= dict.fromkeys(fields, value[0] if same else value)
    rotated = header.get(f"{prefix}.rope.dimension_count", config["head_dim"])
    if rotated != config["head_dim"]:
        config["partial_rotary_factor"] = rotated / config["head_dim"]
    if prefix == "llama" and config.get("num_experts"):
        config["architectures"] = ["MixtralForCausalLM"]
    return config


def gguf_head_dim(header: GGUFHeader) -> int:
    """Return the size of a model's heads. Raises ModelLoadError."""
    prefix = header.values.get("general.architecture")
    heads, size = (header.values.get(f"{prefix}.{name}") for name in ("attention.head_count", "embedding_length"))
    found = header.values.get(f"{prefix}.attention.key_length")
    if found is None and isinstance(heads, int) and isinstance(size, int) and heads > 0:
        found = size // heads
    if not isinstance(found, int) or found < 1:
        raise ModelLoadError(f"{header.path} states no size of attention heads; download it again")
    return found


def _dtype(header: GGUFHeader) -> str:
    """Return the dtype to compute in: that of most weights, or bfloat16 where they are encoded."""
    sizes = dict.fromkeys(("F32", "F16", "BF16", "encoded"), 0)
    for tensor in header.tensors:
        if len(tensor.shape) > 1:
            encoding = BY_NUMBER.get(tensor.type, "encoded")
            sizes["encoded" if encoding in BLOCKS else encoding] += math.prod(tensor.shape)
    most = max(sizes, key=lambda each: sizes[each])
    return {"F32": "float32", "F16": "float16"}.get(most, "bfloat16")


def _eos_token_ids(header: GGUFHeader) -> list[int]:
    found = (header.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return list(dict.fromkeys(each for each in found if isinstance(each, int)))


def _rope_scaling(header: GGUFHeader, prefix: str, head_dim: int) -> dict[str, Any] | None:
    """Return the entry of config.json, of which factors of single frequencies are tensors in a GGUF file."""
    values = {name: header.get(f"{prefix}.rope.scaling.{name}") for name in ("type", *_SCALING)}
    scaling = {field: values[name] for name, field in _SCALING.items() if values[name] is not None}
    if prefix == "mistral3":
        scaling["llama_4_scaling_beta"] = header.get(f"{prefix}.attention.temperature_scale")
        scaling["mscale"] = scaling.get("mscale_all_dim")
    if (factors := _floats(header, "rope_freqs.weight")) and prefix in _LLAMA3_ARCHITECTURES:
        scaling = {**_LLAMA3, "factor": round(max(factors), 3)}
        theta = float(header.get(f"{prefix}.rope.freq_base", 10000.0))
        expected = [_llama3_factor(theta ** (2 * i / head_dim), scaling) for i in range(head_dim // 2)]
        if len(factors) != len(expected) or any(abs(a / b - 1) > 1e-3 for a, b in zip(factors, expected, strict=True)):
            raise UnsupportedModelError(f"{header.path}: rope_freqs.weight is not Llama 3's scaling of RoPE")
        return scaling
    if values["type"] == "longrope" or (values["type"] is None and _floats(header, "rope_factors_long.weight")):
        scaling |= {f"{kind}_factor": _floats(header, f"rope_factors_{kind}.weight") for kind in ("long", "short")}
        return scaling | {"rope_type": "longrope"}
    return None if values["type"] in (None, "none") else scaling | {"rope_type": values["type"]}


def _llama3_factor(turn: float, scaling: Mapping[str, Any]) -> float:
    """Return what a frequency is divided by, from the tokens of a radian."""
    turns = scaling["original_max_position_embeddings"] / (2 * math.pi * turn)
    share = (turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
    share = min(1.0, max(0.0, share))
    return 1 / ((1 - share) / scaling["factor"] + share)


def _floats(header: GGUFHeader, name: str) -> list[float]:
    """Read a small tensor of float32; nothing without one."""
    tensor = next((each for each in header.tensors if each.name == name), None)
    if tensor is None or BY_NUMBER.get(tensor.type) != "F32" or math.prod(tensor.shape) > _MAX_FACTORS:
        return []
    try:
        with header.path.open("rb") as file:
            file.seek(tensor.start)
            count = math.prod(tensor.shape)
            return [shortest(each) for each in struct.unpack(f"<{count}f", file.read(4 * count))]
    except (OSError, struct.error) as error:
        raise ModelLoadError(f"{header.path}: {name} cannot be read ({error}); download it again") from None
