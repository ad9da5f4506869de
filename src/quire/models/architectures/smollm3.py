"""SmolLM3: Llama's decoder with every fourth layer without positions (NoPE, arXiv 2501.18795)."""

from __future__ import annotations

from quire.models.architectures.llama import read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig, ModelConfigError


def read_config(reader: ConfigReader) -> ModelConfig:
    num_layers, interval = reader.integer("num_hidden_layers"), reader.integer("no_rope_layer_interval", 4)
    # 0 marks a layer without positions, in spite of the name.
    has_rope = reader.get("no_rope_layers", [(i + 1) % interval for i in range(num_layers)])
    if not isinstance(has_rope, list) or len(has_rope) < num_layers:
        raise ModelConfigError(f"the config's no_rope_layers is {has_rope!r:.100}; expected a number for each layer")
    config = read_decoder_config(
        reader,
        architecture="SmolLM3ForCausalLM",
        reads_biases=("attention_bias", "mlp_bias"),
        is_tied=True,
    )
    window = reader.integer("sliding_window", 4096) if reader.flag("use_sliding_window", False) else 0
    windows = reader.windows(window, ["full_attention" if has else "sliding_attention" for has in has_rope])
    return config.with_layers(windows, [config.rope if has else None for has in has_rope[:num_layers]])
