"""Seed-OSS and InternLM3: Llama's decoder with biases of their own names."""

from __future__ import annotations

from quire.models.architectures.llama import read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    if reader.get("model_type") == "internlm3":
        bias = reader.flag("bias", reader.flag("mlp_bias", False))
        qkv_bias = reader.flag("qkv_bias", reader.flag("attention_bias", False))
        return read_decoder_config(
            reader,
            architecture="InternLM3ForCausalLM",
            qkv_bias=qkv_bias,
            attention_out_bias=bias,
            mlp_bias=bias,
        )
    return read_decoder_config(
        reader,
        architecture="SeedOssForCausalLM",
        head_dim=reader.integer("head_dim", 128),
        qkv_bias=reader.flag("attention_bias", True),
        attention_out_bias=reader.flag("attention_out_bias", False),
        mlp_bias=reader.flag("mlp_bias", False),
    )
