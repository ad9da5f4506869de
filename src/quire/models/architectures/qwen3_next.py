"""Qwen3-Next: in three of four layers the gated delta rule, in the others attention with a gate; mixtures of experts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from quire.models.architectures.llama import LlamaAttention, LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.architectures.qwen2_moe import read_experts
from quire.models.base import Attend
from quire.models.gated_delta import GatedDeltaNet
from quire.models.layers import select_rows
from quire.models.linear.layer import Linear
from quire.models.model_config import ConfigReader, DeltaConfig, ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share
from quire.models.rotary import Rotation, rotate_heads
from quire.ops import functions as ops
from quire.ops.arrays import Array
from quire.ops.module import Module

#: Values that configs leave out.
_DEFAULTS: dict[str, Any] = {
    "norm_topk_prob": True, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "max_position_embeddings": 32_768,
}  # fmt: skip


def read_config(reader: ConfigReader) -> ModelConfig:
    return with_experts(read_hybrid(reader, "Qwen3NextForCausalLM"), reader)


def with_experts(config: ModelConfig, reader: ConfigReader) -> ModelConfig:
    shared = reader.integer("shared_expert_intermediate_size", 512)
    reader = reader.with_defaults(_DEFAULTS)
    return replace(config, experts=read_experts(reader, config, shared_inner=shared, shared_gate=True))


def read_hybrid(reader: ConfigReader, architecture: str) -> ModelConfig:
    """Read what Qwen3-Next and Qwen3.5 share."""
    reader = reader.with_defaults(_DEFAULTS)
    taps = reader.integer("linear_conv_kernel_dim", 4)
    reader.refuse_if(taps != 4, f"linear_conv_kernel_dim={taps}")
    reader.refuse_if(not reader.flag("attn_output_gate", True), "attn_output_gate=false")
    attention_bias = reader.flag("attention_bias", False)
    config = read_decoder_config(
        reader.with_defaults({"intermediate_size": 5632}),
        architecture=architecture,
        head_dim=reader.integer("head_dim", 256),
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        qk_norm=True,
        norm_offset=1.0,
        partial=0.25,
        has_attention_gate=True,
        delta=DeltaConfig(
            num_key_heads=reader.integer("linear_num_key_heads", 16),
            num_value_heads=reader.integer("linear_num_value_heads", 32),
            key_dim=reader.integer("linear_key_head_dim", 128),
            value_dim=reader.integer("linear_value_head_dim", 128),
        ),
    )
    interval = reader.integer("full_attention_interval", 4)
    default = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(config.num_layers)]
    kinds = reader.layer_types(default, other="linear_attention")
    layers = (
        replace(layer, has_state=kind == "linear_attention")
        for layer, kind in zip(config.layer_configs, kinds, strict=True)
    )
    return replace(config, layers=tuple(layers))


class GatedAttention(LlamaAttention):
    """Attention whose output is multiplied by the sigmoid of a gate. Each query is followed by its head's gate."""

    def make_qkv(self, config: ModelConfig, q: Share, kv: Share, **factory: Any) -> Linear:
        return super().make_qkv(config, q.of_size(2), kv, **factory)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        qkv = self.qkv_proj(x).reshape(len(x), 2 * self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        gates = select_rows(qkv[:, 1 : 2 * self.num_heads : 2], rows)
        norms = (self.q_norm, self.k_norm)
        q, k, v = rotate_heads(qkv, rotation, self.num_heads, self.num_kv_heads, norms, query_step=2)
        out = ops.gate_heads(select_rows(attend(self.index, q, k, v), rows), gates)
        return self.o_proj(out.reshape(len(out), self.num_heads * self.head_dim))


class InterleavedDeltaNet(GatedDeltaNet):
    is_interleaved = True


class HybridDecoderLayer(LlamaDecoderLayer):
    attention_class = GatedAttention
    delta_class: type[Module] = InterleavedDeltaNet

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        if config.layer_configs[index].has_state:
            self.attention_class, self.attention_name = self.delta_class, "linear_attn"
        super().__init__(config, split, index, **factory)


class Qwen3NextForCausalLM(LlamaForCausalLM):
    layer_class = HybridDecoderLayer
    ignored_tensors = re.compile(r"mtp\..*")
