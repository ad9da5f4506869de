"""Mistral and Ministral: Llama's decoder, maybe with a sliding window."""

from __future__ import annotations

from quire.models.architectures.llama import read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig

_NAMES = {"mistral": "MistralForCausalLM", "ministral": "MinistralForCausalLM", "ministral3": "Ministral3ForCausalLM"}


def read_config(reader: ConfigReader) -> ModelConfig:
    kind = reader.get("model_type", "mistral")
    config = read_decoder_config(reader, architecture=_NAMES[kind])
    default = None if kind == "ministral3" else 4096  # where the field is absent; null means none, as in transformers
    window = 0 if reader.values.get("sliding_window", default) is None else reader.integer("sliding_window", default)
    return config.with_layers(reader.windows(window, ["sliding_attention"] * config.num_layers))
