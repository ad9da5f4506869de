"""Phi-3 and Phi-4: Llama's decoder. Checkpoints fuse q, k and v, and the MLP's gate and up."""

from __future__ import annotations

from typing import Any, ClassVar

from quire.models.architectures.llama import (
    FusedMLP,
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaForCausalLM,
    read_decoder_config,
)
from quire.models.linear.layer import Linear
from quire.models.model_config import ConfigReader, ModelConfig
from quire.models.parallel.split import Share


def read_config(reader: ConfigReader) -> ModelConfig:
    config = read_decoder_config(reader, architecture="Phi3ForCausalLM", partial=1.0)
    return config.with_layers([reader.get("sliding_window")] * config.num_layers)


class Phi3Attention(LlamaAttention):
    def make_qkv(self, config: ModelConfig, q: Share, kv: Share, **factory: Any) -> Linear:
        return Linear(config.hidden_size, Share.joined(q, kv, kv), bias=config.qkv_bias, **factory)


class Phi3DecoderLayer(LlamaDecoderLayer):
    attention_class = Phi3Attention
    mlp_class: ClassVar = FusedMLP


class Phi3ForCausalLM(LlamaForCausalLM):
    layer_class = Phi3DecoderLayer
