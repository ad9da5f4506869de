"""GLM-4.5 to 4.7: Llama's decoder with half of each head rotated, and the mixtures of experts of DeepSeek-V3."""

from __future__ import annotations

from quire.models.architectures.deepseek import DeepseekV2ForCausalLM, read_experts
from quire.models.architectures.llama import LlamaDecoderLayer, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    return read_decoder_config(
        reader,
        architecture="Glm4MoeForCausalLM",
        qkv_bias=reader.flag("attention_bias", False),
        qk_norm=reader.flag("use_qk_norm", False),
        partial=0.5,
        experts=read_experts(reader, is_v2=False),
    )


class Glm4MoeForCausalLM(DeepseekV2ForCausalLM):
    layer_class = LlamaDecoderLayer
