"""EXAONE 4: Llama's decoder with norms of outputs, of q and of k. With a window, only its layers have positions."""

from __future__ import annotations

from quire.models.architectures.llama import LlamaForCausalLM, read_decoder_config
from quire.models.architectures.olmo2 import Olmo2DecoderLayer
from quire.models.model_config import ConfigReader, ModelConfig


def read_config(reader: ConfigReader) -> ModelConfig:
    config = read_decoder_config(
        reader, architecture="Exaone4ForCausalLM", qk_norm=True, norm_before=False, norm_outputs=True
    )
    window = 0 if reader.values.get("sliding_window", 4096) is None else reader.integer("sliding_window", 4096)
    num_layers, pattern = config.num_layers, reader.get("sliding_window_pattern", 4)
    period = len(pattern) if isinstance(pattern, str) else pattern  # such as LLLG
    is_local = [bool(window) and (i + 1) % period != 0 for i in range(num_layers)]
    windows = reader.windows(window, ["sliding_attention" if each else "full_attention" for each in is_local])
    return config.with_layers(windows, [config.rope if each or not window else None for each in windows])


class Exaone4ForCausalLM(LlamaForCausalLM):
    layer_class = Olmo2DecoderLayer
