"""OLMo 2: Llama's decoder with norms of outputs instead of inputs, and of all heads' q and k."""

from __future__ import annotations

from quire.models.architectures.llama import LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    attention_bias = reader.flag("attention_bias", False)
    return read_decoder_config(
        reader,
        architecture="Olmo2ForCausalLM",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        qk_norm=True,
        qk_norm_all_heads=True,
        norm_before=False,
        norm_outputs=True,
    )


class Olmo2DecoderLayer(LlamaDecoderLayer):
    norm_names = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")


class Olmo2ForCausalLM(LlamaForCausalLM):
    layer_class = Olmo2DecoderLayer
