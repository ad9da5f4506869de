"""GLM-4: Llama's decoder with half of each head rotated in interleaved pairs. The models of 2025 also norm outputs."""

from __future__ import annotations

from typing import ClassVar

from quire.models.architectures.llama import FusedMLP, LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    is_glm4 = reader.get("model_type") == "glm4"
    return read_decoder_config(
        reader,
        architecture="Glm4ForCausalLM" if is_glm4 else "GlmForCausalLM",
        qkv_bias=reader.flag("attention_bias", not is_glm4),
        norm_outputs=is_glm4,
        partial=0.5,
        is_interleaved=True,
    )


class GlmDecoderLayer(LlamaDecoderLayer):
    mlp_class: ClassVar = FusedMLP


class GlmForCausalLM(LlamaForCausalLM):
    layer_class: ClassVar = GlmDecoderLayer


class Glm4DecoderLayer(GlmDecoderLayer):
    norm_names = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")


class Glm4ForCausalLM(LlamaForCausalLM):
    layer_class = Glm4DecoderLayer
