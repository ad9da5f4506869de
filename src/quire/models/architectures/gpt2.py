"""GPT-2 (and DialoGPT): learned positions, LayerNorm, one merged qkv projection, weights stored transposed."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from quire.models.base import Attend, CausalLM
from quire.models.layers import Embedding, LayerNorm, check_activation, select_rows
from quire.models.linear.layer import Conv1DLinear
from quire.models.model_config import ConfigReader, ModelConfig
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType
from quire.ops.module import Module, ModuleList


def read_config(reader: ConfigReader) -> ModelConfig:
    hidden_size, num_heads = reader.integer("n_embd"), reader.integer("n_head")
    reader.refuse_if(not reader.flag("scale_attn_weights", True), "GPT-2 with scale_attn_weights=false")
    for name in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        reader.refuse_if(reader.flag(name, False), f"GPT-2 with {name}=true")
    reader.refuse_if(hidden_size % num_heads, f"n_embd={hidden_size} that n_head={num_heads} does not divide")
    max_positions = reader.integer("n_positions", reader.get("n_ctx", 1024))
    return ModelConfig(
        architecture="GPT2LMHeadModel",
        vocab_size=reader.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("n_inner", 4 * hidden_size),
        num_layers=reader.integer("n_layer"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_positions,
        norm_eps=reader.number("layer_norm_epsilon", 1e-5),
        hidden_act=check_activation(reader.get("activation_function", "gelu_new")),
        tie_word_embeddings=reader.flag("tie_word_embeddings", True),
        rope=None,
        dtype=reader.get("dtype", reader.get("torch_dtype")),
        eos_token_ids=reader.token_ids("eos_token_id", 50256),
        initializer_range=reader.number("initializer_range", 0.02),
        qkv_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        norm_has_bias=True,
        num_position_rows=max_positions,
    )


class GPT2Attention(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.index = index
        self.num_heads, self.head_dim = split.num_heads, config.head_dim
        self.c_attn = Conv1DLinear(config.hidden_size, split.q.repeated(3), bias=True, **factory)
        self.c_proj = Conv1DLinear(split.q, config.hidden_size, bias=True, group=split.group, **factory)

    def __call__(self, x: Array, attend: Attend, rows: Array | None) -> Array:
        qkv = self.c_attn(x).reshape(len(x), 3, self.num_heads, self.head_dim)
        q, k, v = qkv[:, 0], qkv[:, 1], qkv[:, 2]
        out = select_rows(attend(self.index, q, k, v), rows)
        return self.c_proj(out.reshape(len(out), self.num_heads * self.head_dim))


class GPT2MLP(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        self.c_fc = Conv1DLinear(config.hidden_size, split.inner, bias=True, **factory)
        self.c_proj = Conv1DLinear(split.inner, config.hidden_size, bias=True, group=split.group, **factory)
        self.activation = ops.ACTIVATIONS[config.hidden_act]

    def __call__(self, x: Array) -> Array:
        return self.c_proj(ops.activate(self.c_fc(x), self.activation))


class GPT2Block(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.ln_1 = LayerNorm(config.hidden_size, config.norm_eps, **factory)
        self.attn = GPT2Attention(config, split, index, **factory)
        self.ln_2 = LayerNorm(config.hidden_size, config.norm_eps, **factory)
        self.mlp = GPT2MLP(config, split, **factory)

    def __call__(self, x: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        x = ops.add(select_rows(x, rows), self.attn(self.ln_1(x), attend, rows))
        return ops.add(x, self.mlp(self.ln_2(x)))


class GPT2LMHeadModel(CausalLM):
    checkpoint_names: ClassVar = {
        "embed_tokens": "transformer.wte",
        "embed_positions": "transformer.wpe",
        "layers": "transformer.h",
        "norm": "transformer.ln_f",
    }
    optional_prefix = "transformer."
    ignored_tensors = re.compile(r".*\.attn\.(masked_)?bias")  # the causal mask, once stored as a buffer

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        self.embed_positions = Embedding(self.split.positions, config.hidden_size, dtype=dtype, device=device)
        self.layers = ModuleList(
            GPT2Block(config, self.split, index, dtype=dtype, device=device) for index in range(config.num_layers)
        )
        self.norm = LayerNorm(config.hidden_size, config.norm_eps, dtype=dtype, device=device)

    def __call__(self, input_ids: Array, positions: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        x = self.split.group.all_reduce(ops.add(self.embed_tokens(input_ids), self.embed_positions(positions)))
        for layer, wanted in self.layers_and_rows(rows):
            x = layer(x, attend, rows=wanted)
        return self.norm(x)
