"""Qwen3-Next, and the text part of Qwen3.5 and 3.6: the gated delta rule in three of four layers, and in the others
attention with a gate."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

from quire.models.architectures.llama import LlamaAttention, LlamaDecoderLayer, LlamaForCausalLM, read_decoder_config
from quire.models.architectures.qwen2_moe import read_experts
from quire.models.base import Attend
from quire.models.layers import select_rows
from quire.models.linear.layer import Linear
from quire.models.model_config import ConfigReader, ModelConfig
from quire.models.parallel.split import Share
from quire.models.rotary import Rotation, rotate_heads
from quire.models.states.config import DeltaConfig
from quire.models.states.gated_delta import GatedDeltaNet
from quire.ops import functions as ops
from quire.ops.arrays import Array

#: Values that configs leave out.
_DEFAULTS: dict[str, Any] = {
    "norm_topk_prob": True, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "max_position_embeddings": 32_768, "intermediate_size": 5632, "head_dim": 256,
}  # fmt: skip
_ARCHITECTURES = {"qwen3_5_text": "Qwen3_5ForCausalLM", "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"}


def read_config(reader: ConfigReader) -> ModelConfig:
    reader = reader.with_defaults(_DEFAULTS)
    architecture = _ARCHITECTURES.get(reader.get("model_type"), "Qwen3NextForCausalLM")
    flags: dict[str, Any] = {"qk_norm": True, "norm_offset": 1.0, "partial": 0.25, "has_attention_gate": True}
    state = _read_delta(reader, is_interleaved=architecture == "Qwen3NextForCausalLM")
    config = read_decoder_config(reader, architecture, reads_biases=("attention_bias",), state=state, **flags)
    interval = reader.integer("full_attention_interval", 4)
    default = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(config.num_layers)]
    kinds = reader.layer_types(default, other="linear_attention")
    layers = tuple(replace(config.layer_configs[0], has_state=kind == "linear_attention") for kind in kinds)
    if architecture == "Qwen3_5ForCausalLM":
        return replace(config, layers=layers)
    shared = {"shared_inner": reader.integer("shared_expert_intermediate_size", 512), "shared_gate": True}
    return replace(config, layers=layers, experts=read_experts(reader, config, **shared))


def _read_delta(reader: ConfigReader, is_interleaved: bool) -> DeltaConfig:
    sizes = {"num_key_heads": 16, "num_value_heads": 32, "key_head_dim": 128, "value_head_dim": 128}
    keys, values, key_dim, value_dim = (reader.integer(f"linear_{each}", usual) for each, usual in sizes.items())
    reader.refuse_if(values % keys, f"{values} value heads for {keys} key heads of linear attention")
    reader.refuse_if(key_dim % 16 or value_dim % 32, f"linear attention with heads of {key_dim} and {value_dim}")
    reader.refuse_if(reader.integer("linear_conv_kernel_dim", 4) != 4, "another linear_conv_kernel_dim than 4")
    reader.refuse_if(not reader.flag("attn_output_gate", True), "attn_output_gate=false")
    is_apart = is_interleaved and reader.flag("linear_inputs_apart", False)  # in GGUF files
    return DeltaConfig(keys, values, key_dim, value_dim, is_interleaved=is_interleaved, inputs_apart=is_apart)


class GatedAttention(LlamaAttention):
    """Attention whose output is multiplied by the sigmoid of a gate. Each query is followed by its head's gate."""

    def make_qkv(self, config: ModelConfig, q: Share, kv: Share, **factory: Any) -> Linear:
        return super().make_qkv(config, q.of_size(2), kv, **factory)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        qkv = self.qkv_proj(x).reshape(len(x), 2 * self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        gates = select_rows(qkv[:, 1 : 2 * self.num_heads : 2], rows)
        norms: Any = (self.q_norm, self.k_norm)
        q, k, v = rotate_heads(qkv, rotation, self.num_heads, self.num_kv_heads, norms, query_step=2)
        out = ops.gate_heads(select_rows(attend(self.index, q, k, v), rows), gates)
        return self.o_proj(out.reshape(len(out), self.num_heads * self.head_dim))


class Qwen3NextDecoderLayer(LlamaDecoderLayer):
    attention_class = GatedAttention
    state_class, state_name = GatedDeltaNet, "linear_attn"


class Qwen3NextForCausalLM(LlamaForCausalLM):
    layer_class = Qwen3NextDecoderLayer
    ignored_tensors = re.compile(r"mtp\..*")
    draft_head_names: ClassVar = {
        "fc": "mtp.fc",
        "embedding_norm": "mtp.pre_fc_norm_embedding",
        "hidden_norm": "mtp.pre_fc_norm_hidden",
        "layer": "mtp.layers.0",
        "norm": "mtp.norm",
    }


Qwen3_5ForCausalLM = Qwen3_5MoeForCausalLM = Qwen3NextForCausalLM
