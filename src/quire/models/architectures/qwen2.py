"""Qwen2 and Qwen2.5: Llama's decoder with a bias on q, k and v."""

from __future__ import annotations

from quire.models.architectures.llama import read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    config = read_decoder_config(reader, architecture="Qwen2ForCausalLM", qkv_bias=True)
    return config.with_layers(read_windows(reader))


def read_windows(reader: ConfigReader) -> list[int]:
    """Return each layer's sliding window; 0 for none."""
    window = reader.integer("sliding_window", 4096) if reader.flag("use_sliding_window", False) else 0
    first = reader.get("max_window_layers", 28)
    default = ["full_attention"] * first + ["sliding_attention"] * reader.integer("num_hidden_layers")
    return reader.windows(window, default)
