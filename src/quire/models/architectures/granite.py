"""Granite 3: Llama's decoder with multipliers of embeddings, scores, outputs and logits."""

from __future__ import annotations

from typing import Any

from quire.models.architectures.llama import read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    biases = ("attention_bias", "mlp_bias")
    return read_decoder_config(reader, "GraniteForCausalLM", reads_biases=biases, **read_multipliers(reader))


def read_multipliers(reader: ConfigReader) -> dict[str, Any]:
    """Return the fields of ModelConfig for Granite's multipliers."""
    return {
        "embedding_multiplier": reader.number("embedding_multiplier", 1.0),
        "attention_scale": reader.number("attention_multiplier", 1.0),
        "residual_multiplier": reader.number("residual_multiplier", 1.0),
        "logits_multiplier": 1 / reader.number("logits_scaling", 1.0),
    }
