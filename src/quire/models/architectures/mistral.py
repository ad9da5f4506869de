"""Mistral and Ministral 3: Llama's decoder. Its first version attends through a sliding window, which Quire refuses."""

from __future__ import annotations

from quire.models.architectures.llama import LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    if reader.get("model_type") == "ministral3":
        config = read_decoder_config(reader, architecture="Ministral3ForCausalLM")
        refuse_window(reader, config, reader.get("sliding_window"))
        return config
    config = read_decoder_config(reader, architecture="MistralForCausalLM")
    # absent means 4096, null means none, as in transformers
    refuse_window(reader, config, reader.values.get("sliding_window", 4096))
    return config


def refuse_window(reader: ConfigReader, config: ModelConfig, window: int | None) -> None:
    """Refuse a sliding window that is shorter than the context."""
    reader.refuse_if(
        window is not None and window < config.context_length,
        f"a sliding window of {window} tokens in a context of {config.context_length}",
        f"up to {window} tokens the window has no effect: to serve those, set sliding_window to null and "
        f"max_position_embeddings to {window} in config.json",
    )


class MistralForCausalLM(LlamaForCausalLM):
    pass


class Ministral3ForCausalLM(LlamaForCausalLM):
    pass
