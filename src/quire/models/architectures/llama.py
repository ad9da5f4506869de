"""Llama's decoder; Mistral, Qwen2 and Qwen3 are this decoder with other flags in their ModelConfig."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from quire.kernels.recorder import begin_layer
from quire.models.base import Attend, CausalLM
from quire.models.layers import RMSNorm, Sum, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ConfigReader, ModelConfig, RopeConfig
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.models.rotary import RotaryEmbedding, rotate_heads
from quire.ops.arrays import Array, DType
from quire.ops.module import Module, ModuleList


def read_config(reader: ConfigReader) -> ModelConfig:
    attention_bias = reader.flag("attention_bias", False)
    return read_decoder_config(
        reader,
        architecture="LlamaForCausalLM",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        mlp_bias=reader.flag("mlp_bias", False),
    )


def read_decoder_config(reader: ConfigReader, architecture: str, **flags: Any) -> ModelConfig:
    """Read the config of a Llama-like architecture; `flags` are its differences."""
    hidden_size, num_heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    head_dim = flags.pop("head_dim", None) or reader.integer("head_dim", hidden_size // num_heads)
    activation = reader.get("hidden_act", "silu")
    reader.refuse_if(activation not in ("silu", "swish"), f"activation {activation!r} in {architecture}", "it has silu")
    return ModelConfig(
        architecture=architecture,
        vocab_size=reader.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("intermediate_size"),
        num_layers=reader.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=reader.integer("num_key_value_heads", num_heads),
        head_dim=head_dim,
        max_position_embeddings=reader.integer("max_position_embeddings", 2048),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        hidden_act=activation,
        tie_word_embeddings=reader.flag("tie_word_embeddings", False),
        rope=RopeConfig.from_hf(reader, head_dim),
        dtype=reader.get("dtype", reader.get("torch_dtype")),
        eos_token_ids=reader.token_ids("eos_token_id"),
        initializer_range=reader.number("initializer_range", 0.02),
        **flags,
    )


class LlamaAttention(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.index = index
        self.num_heads, self.num_kv_heads, self.head_dim = split.num_heads, split.num_kv_heads, config.head_dim
        self.qkv_proj = MergedLinear(
            config.hidden_size,
            {"q_proj": split.q, "k_proj": split.kv, "v_proj": split.kv},
            bias=config.qkv_bias,
            **factory,
        )
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps, **factory) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps, **factory) if config.qk_norm else None
        self.o_proj = Linear(split.q, config.hidden_size, bias=config.attention_out_bias, group=split.group, **factory)

    def __call__(self, x: Array, rotation: tuple[Array, Array], attend: Attend, rows: Array | None) -> Array:
        qkv = self.qkv_proj(x).reshape(len(x), self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        norms = (self.q_norm, self.k_norm) if self.q_norm is not None and self.k_norm is not None else None
        q, k, v = rotate_heads(qkv, rotation, self.num_heads, self.num_kv_heads, norms)
        out = select_rows(attend(self.index, q, k, v), rows)
        return self.o_proj(out.reshape(len(out), self.num_heads * self.head_dim))


class LlamaMLP(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        hidden, inner = config.hidden_size, split.inner
        self.gate_proj = Linear(hidden, inner, bias=config.mlp_bias, **factory)
        self.up_proj = Linear(hidden, inner, bias=config.mlp_bias, **factory)
        self.down_proj = Linear(inner, hidden, bias=config.mlp_bias, group=split.group, **factory)

    def __call__(self, x: Array) -> Array:
        return self.down_proj(self.gate_proj.gated(x, self.up_proj))


class LlamaDecoderLayer(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps, **factory)
        self.self_attn = LlamaAttention(config, split, index, **factory)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps, **factory)
        self.mlp = LlamaMLP(config, split, **factory)

    def __call__(
        self, x: Array | Sum, rotation: tuple[Array, Array], attend: Attend, *, rows: Array | None = None
    ) -> Sum:
        x, normed = self.input_layernorm.add_and_norm(x)
        attended = self.self_attn(normed, rotation, attend, rows)
        x, normed = self.post_attention_layernorm.add_and_norm(Sum(select_rows(x, rows), attended))
        return Sum(x, self.mlp(normed))


class LlamaForCausalLM(CausalLM):
    checkpoint_names: ClassVar = {"embed_tokens": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm"}
    optional_prefix = "model."
    ignored_tensors = re.compile(r".*\.rotary_emb\.inv_freq")

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        assert config.rope is not None
        self.rotary = RotaryEmbedding(config.rope)
        self.layers = ModuleList(
            LlamaDecoderLayer(config, self.split, index, dtype=dtype, device=device)
            for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, dtype=dtype, device=device)

    def __call__(self, input_ids: Array, positions: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        x = self.split.group.all_reduce(self.embed_tokens(input_ids))
        return self.recorded(self._through_layers, attend, x, *self.rotary(positions, x.dtype), rows=rows)

    def _through_layers(
        self, attend: Attend, x: Array, cosines: Array, sines: Array, rows: Array | None = None
    ) -> Array:
        state: Array | Sum = x
        for layer, wanted in self.layers_and_rows(rows):
            begin_layer()
            state = layer(state, (cosines, sines), attend, rows=wanted)
        return self.norm.add_and_norm(state)[1]
