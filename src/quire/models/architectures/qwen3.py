"""Qwen3: Llama's decoder with an RMSNorm over each head's q and k, and a head size of its own."""

from __future__ import annotations

from quire.models.architectures.llama import read_decoder_config
from quire.models.architectures.qwen2 import read_windows
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    return read_decoder_config(
        reader,
        architecture="Qwen3ForCausalLM",
        head_dim=reader.integer("head_dim", 128),
        reads_biases=("attention_bias",),
        qk_norm=True,
    ).with_layers(read_windows(reader))
