"""LFM2: gated short convolutions in most layers, and attention with normed queries and keys in the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from quire.models.architectures.llama import LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.model_config import ConfigReader, ExpertsConfig, ModelConfig
from quire.models.states.config import ConvConfig
from quire.models.states.short_conv import ShortConv

#: Values that configs leave out, and names of older configs.
_DEFAULTS: dict[str, Any] = {"max_position_embeddings": 128_000, "rope_theta": 1e6}
_OLD_NAMES = {"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings"}


def read_config(reader: ConfigReader) -> ModelConfig:
    old = {name: reader.get(given) for given, name in _OLD_NAMES.items() if reader.get(given) is not None}
    reader = reader.with_defaults(_DEFAULTS).replaced(**old, rms_norm_eps=reader.number("norm_eps", 1e-5))
    is_moe = reader.get("model_type") == "lfm2_moe"
    architecture = "Lfm2MoeForCausalLM" if is_moe else "Lfm2ForCausalLM"
    config = read_decoder_config(reader, architecture, is_tied=True, qk_norm=True)
    num_layers, hidden = config.num_layers, config.hidden_size
    reader.refuse_if(reader.integer("conv_L_cache", 3) != 3, "another conv_L_cache than 3")
    reader.refuse_if(hidden % 16, f"convolutions with {hidden} channels", "expected a multiple of 16")
    attends = reader.token_ids("full_attn_idxs") if reader.get("full_attn_idxs") is not None else range(num_layers)
    kinds = reader.layer_types(["full_attention" if i in attends else "conv" for i in range(num_layers)], "conv")
    layers = tuple(replace(config.layer_configs[0], has_state=kind == "conv") for kind in kinds)
    state = ConvConfig(hidden, has_bias=reader.flag("conv_bias", False))
    inner = config.intermediate_size if is_moe else _inner_size(reader, config.intermediate_size)
    experts = _read_experts(reader, num_layers) if is_moe else None
    return replace(config, layers=layers, state=state, intermediate_size=inner, experts=experts)


def _inner_size(reader: ConfigReader, size: int) -> int:
    """Return the inner features of an MLP; the config may give those of one without a gate."""
    if not reader.flag("block_auto_adjust_ff_dim", True):
        return size
    multiple = reader.integer("block_multiple_of", 256)
    size = int(reader.number("block_ffn_dim_multiplier", 1.0) * int(2 * size / 3))
    return -(-size // multiple) * multiple


def _read_experts(reader: ConfigReader, num_layers: int) -> ExpertsConfig:
    return ExpertsConfig(
        count=reader.integer("num_experts", 32),
        chosen=reader.integer("num_experts_per_tok", 4),
        inner=reader.integer("moe_intermediate_size", 1792),
        scores="sigmoid",
        normalizes=reader.flag("norm_topk_prob", True),
        scale=reader.number("routed_scaling_factor", 1.0),
        dense_layers=tuple(range(min(num_layers, reader.get("num_dense_layers", 2)))),
        has_choice_bias=reader.flag("use_expert_bias", True),
        has_float_logits=True,
    )


class Lfm2DecoderLayer(LlamaDecoderLayer):
    norm_names = ("operator_norm", None, "ffn_norm", None)
    state_class, state_name = ShortConv, "conv"


class Lfm2ForCausalLM(LlamaForCausalLM):
    checkpoint_names: ClassVar = {**LlamaForCausalLM.checkpoint_names, "norm": "model.embedding_norm"}
    renamed_tensors: ClassVar = {
        ".feed_forward.expert_bias": ".mlp.gate.e_score_correction_bias",
        ".feed_forward.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
        ".self_attn.out_proj.": ".self_attn.o_proj.",
        ".q_layernorm.": ".q_norm.",
        ".k_layernorm.": ".k_norm.",
    }
    layer_class = Lfm2DecoderLayer


Lfm2MoeForCausalLM = Lfm2ForCausalLM
