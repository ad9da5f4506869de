"""Gemma 2 and 3: Llama's decoder with norms around attention and MLP, whose weights are stored less one, and with
sliding windows in some layers. Gemma 2 has soft-caps, Gemma 3 norms of q and k."""

from __future__ import annotations

from typing import Any

import numpy as np

from quire.models.architectures.llama import LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ModelConfig, RopeConfig
from quire.models.parallel import ALONE, ParallelGroup
from quire.ops.arrays import DType, name_of, numpy_dtype

ACTIVATIONS = ("gelu_pytorch_tanh", "gelu_tanh", "gelu_new")


#: Values that configs of Gemma 3 leave out.
_DEFAULTS = {
    "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131_072,
    "eos_token_id": 1,
}  # fmt: skip


def read_config(reader: ConfigReader) -> ModelConfig:
    is_gemma3 = reader.get("model_type") != "gemma2"
    if is_gemma3:
        reader = reader.with_defaults(_DEFAULTS)
    reader.refuse_if(reader.get("use_bidirectional_attention"), "bidirectional attention")
    head_dim = reader.integer("head_dim", 256)
    reader = reader.replaced(rope_parameters=_rope_parameters(reader))
    local = RopeConfig.from_hf(reader, head_dim, layer_type="sliding_attention")
    config = read_decoder_config(
        reader,
        architecture="Gemma3ForCausalLM" if is_gemma3 else "Gemma2ForCausalLM",
        is_tied=True,
        activations=ACTIVATIONS,
        head_dim=head_dim,
        layer_type="full_attention",
        reads_biases=("attention_bias",),
        qk_norm=is_gemma3,
        norm_offset=1.0,
        norm_outputs=True,
        attention_scale=reader.number("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_softcap(reader, "attn_logit_softcapping", None if is_gemma3 else 50.0),
        logits_softcap=_softcap(reader, "final_logit_softcapping", None if is_gemma3 else 30.0),
        embedding_multiplier=reader.integer("hidden_size") ** 0.5,
    )
    interval = reader.integer("sliding_window_pattern", 6 if is_gemma3 else 2)
    default = ["sliding_attention" if (i + 1) % interval else "full_attention" for i in range(config.num_layers)]
    windows = reader.windows(reader.integer("sliding_window", 4096), default)
    return config.with_layers(windows, [local if each and is_gemma3 else config.rope for each in windows])


def _softcap(reader: ConfigReader, name: str, default: float | None) -> float:
    is_off = reader.values.get(name, default) is None
    return 0.0 if is_off else reader.number(name, default)


def _rope_parameters(reader: ConfigReader) -> dict[str, Any]:
    """Return RoPE parameters by the kind of layer, as transformers 5 writes them. Those of transformers 4 have other
    names."""
    given = reader.get("rope_parameters", {})
    kinds = ("full_attention", "sliding_attention")
    if any(kind in given for kind in kinds):
        return {kind: given.get(kind) or {} for kind in kinds}
    local = {"rope_type": "default", "rope_theta": reader.number("rope_local_base_freq", 10000.0)}
    is_gemma2 = reader.get("model_type") == "gemma2"
    full = {**(given or reader.get("rope_scaling") or {})}
    full.setdefault("rope_theta", reader.number("rope_theta", 1e4 if is_gemma2 else 1e6))
    return dict(zip(kinds, (full, local), strict=True))


class GemmaDecoderLayer(LlamaDecoderLayer):
    norm_names = (
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
    )  # fmt: skip


class Gemma3ForCausalLM(LlamaForCausalLM):
    layer_class = GemmaDecoderLayer

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        self.embedding_multiplier = rounded(config.embedding_multiplier, dtype)


Gemma2ForCausalLM = Gemma3ForCausalLM


def rounded(factor: float, dtype: DType) -> float:
    """Round a factor as the model does, to its dtype."""
    return float(np.asarray(factor, numpy_dtype(name_of(dtype))))
