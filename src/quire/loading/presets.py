"""Presets `random:NAME`: known shapes, random weights, and a tokenizer of bytes (0 to 255; 256 ends a text)."""

from __future__ import annotations

import difflib
import re
from typing import Any

from quire.loading.errors import ModelLoadError

PRESET_PREFIX = "random:"
_END_OF_TEXT = 256


def preset_names() -> list[str]:
    return [PRESET_PREFIX + name for name in PRESETS]


def preset_config(name: str) -> dict[str, Any]:
    """Return a preset's config in the form of a `config.json`; raise ModelLoadError for unknown names."""
    key = name.removeprefix(PRESET_PREFIX).lower()
    if key not in PRESETS:
        close = difflib.get_close_matches(key, PRESETS, n=3)
        hint = f"did you mean {' or '.join(PRESET_PREFIX + c for c in close)}? " if close else ""
        raise ModelLoadError(f"there is no preset {name!r}; {hint}Presets: {', '.join(preset_names())}")
    return {**PRESETS[key], "bos_token_id": _END_OF_TEXT, "eos_token_id": _END_OF_TEXT}


def _decoder(
    model: str, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "architectures": [f"{model}ForCausalLM"],
        "model_type": re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", model).lower(),
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "hidden_act": "silu",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        **more,
    }


def _qwen(
    model: str, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocab: int = 151936, **more: Any
) -> dict[str, Any]:
    known = {"rope_theta": 1e6, "rms_norm_eps": 1e-6}
    return _decoder(
        model, hidden, inner, layers, heads, kv_heads, vocab, **{"max_position_embeddings": 32768, **known, **more}
    )


def _qwen3(hidden: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return _qwen("Qwen3", hidden, inner, layers, heads, 8, head_dim=128, max_position_embeddings=40960, **more)


def _llama3(hidden: int, inner: int, layers: int, heads: int, factor: float, **more: Any) -> dict[str, Any]:
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    known = {"rope_theta": 5e5, "rope_scaling": scaling, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5}
    return _decoder("Llama", hidden, inner, layers, heads, 8, 128256, **known, **more)


def _llama(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, max_positions: int, vocab: int = 32000, **more: Any
) -> dict[str, Any]:
    known = {"max_position_embeddings": max_positions, "rms_norm_eps": 1e-5}
    return _decoder("Llama", hidden, inner, layers, heads, kv_heads, vocab, **{**known, **more})


def _smollm2(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, theta: float) -> dict[str, Any]:
    more = {"rope_theta": theta, "tie_word_embeddings": True}
    return _llama(hidden, inner, layers, heads, kv_heads, 8192, 49152, **more)


def _gpt2(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 1024,
        "vocab_size": 50257,
        "activation_function": "gelu_new",
        "dtype": "float32",
    }


def _opt(hidden: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": hidden,
        "ffn_dim": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "activation_function": "relu",
        "word_embed_proj_dim": hidden,
        "dtype": "bfloat16",
        **more,
    }


def _qwen3_moe(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, experts: int, **more: Any
) -> dict[str, Any]:
    mixture = {"num_experts": experts, "num_experts_per_tok": 8, "moe_intermediate_size": inner, "norm_topk_prob": True}
    more = {"max_position_embeddings": 40960, **mixture, **more}
    return _qwen("Qwen3Moe", hidden, 3 * hidden, layers, heads, kv_heads, head_dim=128, **more)


# A few MB, for tests and first steps. The large initializer range makes its random text vary.
_TINY = _llama(128, 352, 4, 4, 2, 2048, 512, dtype="float32", initializer_range=0.3, tie_word_embeddings=True)

_TINY_MOE = _decoder(
    "Qwen3Moe", 128, 352, 4, 4, 2, 512,
    head_dim=32, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True,
    dtype="float32", initializer_range=0.3, tie_word_embeddings=True,
)  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": _TINY,
    "tiny-moe": _TINY_MOE,
    "qwen2.5-0.5b": _qwen("Qwen2", 896, 4864, 24, 14, 2, tie_word_embeddings=True),
    "qwen2.5-1.5b": _qwen("Qwen2", 1536, 8960, 28, 12, 2, tie_word_embeddings=True),
    "qwen2.5-7b": _qwen("Qwen2", 3584, 18944, 28, 28, 4, vocab=152064),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tie_word_embeddings=True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, tie_word_embeddings=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tie_word_embeddings=True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32),
    "qwen3-30b-a3b": _qwen3_moe(2048, 768, 48, 32, 4, 128),
    "qwen3-30b-a3b-4-layers": _qwen3_moe(2048, 768, 4, 32, 4, 128, vocab=16384),  # 5 GB, for benchmarks
    "llama-3.2-1b": _llama3(2048, 8192, 16, 32, 32.0, head_dim=64, tie_word_embeddings=True),
    "llama-3.2-3b": _llama3(3072, 8192, 28, 24, 32.0, head_dim=128, tie_word_embeddings=True),
    "llama-3.1-8b": _llama3(4096, 14336, 32, 32, 8.0),
    "llama-2-7b": _llama(4096, 11008, 32, 32, 32, 4096),
    "llama-2-13b": _llama(5120, 13824, 40, 40, 40, 4096),
    "tinyllama-1.1b": _llama(2048, 5632, 22, 32, 4, 2048),
    "smollm2-135m": _smollm2(576, 1536, 30, 9, 3, 1e5),
    "smollm2-360m": _smollm2(960, 2560, 32, 15, 5, 1e5),
    "smollm2-1.7b": _smollm2(2048, 8192, 24, 32, 32, 1.3e5),
    "mistral-7b": _decoder(
        "Mistral", 4096, 14336, 32, 32, 8, 32768,
        max_position_embeddings=32768, sliding_window=None, rope_theta=1e6, rms_norm_eps=1e-5,
    ),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "dialogpt-small": _gpt2(768, 12, 12),
    "dialogpt-medium": _gpt2(1024, 24, 16),
    "opt-125m": _opt(768, 3072, 12, 12),
    "opt-350m": _opt(1024, 4096, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": _opt(2048, 8192, 24, 32),
    "opt-2.7b": _opt(2560, 10240, 32, 32),
    "opt-6.7b": _opt(4096, 16384, 32, 32),
    "opt-13b": _opt(5120, 20480, 40, 40),
}  # fmt: skip
