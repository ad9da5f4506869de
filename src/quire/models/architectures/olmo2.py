"""OLMo 2 and 3: Llama's decoder with norms of outputs instead of inputs, and of all heads' q and k. OLMo 3 has sliding
windows in three of four layers, whose positions are not scaled."""

from __future__ import annotations

from dataclasses import replace

from quire.models.architectures.llama import LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig, RopeConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    is_olmo3 = reader.get("model_type") == "olmo3"
    config = read_decoder_config(
        reader,
        architecture="Olmo3ForCausalLM" if is_olmo3 else "Olmo2ForCausalLM",
        reads_biases=("attention_bias",),
        qk_norm=True,
        qk_norm_all_heads=True,
        norm_before=False,
        norm_outputs=True,
        layer_type="full_attention" if is_olmo3 else None,
    )
    if not is_olmo3:
        return config
    window = reader.integer("sliding_window", 4096)
    default = ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(config.num_layers)]
    windows = reader.windows(window, default)
    local = RopeConfig.from_hf(reader, config.head_dim, layer_type="sliding_attention")
    if "rope_parameters" not in reader.values:
        local = replace(local, rope_type="default", scaling=())
    return config.with_layers(windows, [local if each else config.rope for each in windows])


class Olmo2DecoderLayer(LlamaDecoderLayer):
    norm_names = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")


class Olmo2ForCausalLM(LlamaForCausalLM):
    layer_class = Olmo2DecoderLayer


Olmo3ForCausalLM = Olmo2ForCausalLM
