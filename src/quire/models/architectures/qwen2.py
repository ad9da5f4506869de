"""Qwen2 and Qwen2.5: Llama's decoder with a bias on q, k and v."""

from __future__ import annotations

from quire.models.architectures.llama import LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    config = read_decoder_config(reader, architecture="Qwen2ForCausalLM", qkv_bias=True)
    refuse_sliding_window(reader, config)
    return config


def refuse_sliding_window(reader: ConfigReader, config: ModelConfig) -> None:
    """Refuse an active sliding window that is shorter than the context."""
    window = reader.integer("sliding_window", 4096)
    slides = reader.flag("use_sliding_window", False) and reader.get("max_window_layers", 28) < config.num_layers
    layer_types = reader.get("layer_types")
    if layer_types is not None:
        slides = any(kind != "full_attention" for kind in layer_types)
    reader.refuse_if(
        slides and window < config.context_length,
        f"a sliding window of {window} tokens in a context of {config.context_length}",
        f"up to {window} tokens the window has no effect: to serve those, set use_sliding_window to false, "
        f"remove layer_types and set max_position_embeddings to {window} in config.json",
    )


class Qwen2ForCausalLM(LlamaForCausalLM):
    pass
