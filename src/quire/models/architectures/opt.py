"""OPT: learned positions from row 2 on, ReLU. OPT-350m alone norms after its blocks and projects its embeddings."""

from __future__ import annotations

from typing import Any, ClassVar

from quire.models.base import Attend, CausalLM
from quire.models.layers import Embedding, LayerNorm, check_activation, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ConfigReader, ModelConfig
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType
from quire.ops.module import Module, ModuleList

POSITION_OFFSET = 2  # the first rows of the position table are for padding


def read_config(reader: ConfigReader) -> ModelConfig:
    hidden_size, num_heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    reader.refuse_if(
        hidden_size % num_heads, f"hidden_size={hidden_size} that num_attention_heads={num_heads} does not divide"
    )
    max_positions = reader.integer("max_position_embeddings", 2048)
    norm_before = reader.flag("do_layer_norm_before", True)
    has_bias = reader.flag("enable_bias", True)
    return ModelConfig(
        architecture="OPTForCausalLM",
        vocab_size=reader.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.integer("ffn_dim"),
        num_layers=reader.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_positions,
        norm_eps=1e-5,
        hidden_act=check_activation(reader.get("activation_function", "relu")),
        tie_word_embeddings=reader.flag("tie_word_embeddings", True),
        rope=None,
        dtype=reader.get("dtype", reader.get("torch_dtype")),
        eos_token_ids=reader.token_ids("eos_token_id", 2),
        initializer_range=reader.number("init_std", 0.02),
        qkv_bias=has_bias,
        attention_out_bias=has_bias,
        mlp_bias=has_bias,
        gated_mlp=False,
        norm_has_bias=True,
        norm_is_affine=reader.flag("layer_norm_elementwise_affine", True),
        norm_before=norm_before,
        final_norm=norm_before and not reader.flag("_remove_final_layer_norm", False),
        embedding_dim=reader.integer("word_embed_proj_dim", hidden_size),
        num_position_rows=max_positions + POSITION_OFFSET,
    )


class OPTAttention(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.index = index
        self.num_heads, self.head_dim = split.num_heads, config.head_dim
        size = config.hidden_size
        self.qkv_proj = MergedLinear(
            size, {"q_proj": split.q, "k_proj": split.q, "v_proj": split.q}, bias=config.qkv_bias, **factory
        )
        self.out_proj = Linear(split.q, size, bias=config.attention_out_bias, group=split.group, **factory)

    def __call__(self, x: Array, attend: Attend, rows: Array | None) -> Array:
        qkv = self.qkv_proj(x).reshape(len(x), 3, self.num_heads, self.head_dim)
        q, k, v = qkv[:, 0], qkv[:, 1], qkv[:, 2]
        out = select_rows(attend(self.index, q, k, v), rows)
        return self.out_proj(out.reshape(len(out), self.num_heads * self.head_dim))


class OPTDecoderLayer(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.norm_before = config.norm_before
        self.activation = ops.ACTIVATIONS[config.hidden_act]
        norm = {"affine": config.norm_is_affine, **factory}
        self.self_attn = OPTAttention(config, split, index, **factory)
        self.self_attn_layer_norm = LayerNorm(config.hidden_size, config.norm_eps, **norm)
        self.fc1 = Linear(config.hidden_size, split.inner, bias=config.mlp_bias, **factory)
        self.fc2 = Linear(split.inner, config.hidden_size, bias=config.mlp_bias, group=split.group, **factory)
        self.final_layer_norm = LayerNorm(config.hidden_size, config.norm_eps, **norm)

    def __call__(self, x: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        if self.norm_before:
            x = ops.add(select_rows(x, rows), self.self_attn(self.self_attn_layer_norm(x), attend, rows))
            return ops.add(x, self._mlp(self.final_layer_norm(x)))
        x = self.self_attn_layer_norm(ops.add(select_rows(x, rows), self.self_attn(x, attend, rows)))
        return self.final_layer_norm(ops.add(x, self._mlp(x)))

    def _mlp(self, x: Array) -> Array:
        return self.fc2(ops.activate(self.fc1(x), self.activation))


class OPTForCausalLM(CausalLM):
    checkpoint_names: ClassVar = {
        "embed_tokens": "model.decoder.embed_tokens",
        "embed_positions": "model.decoder.embed_positions",
        "project_in": "model.decoder.project_in",
        "layers": "model.decoder.layers",
        "norm": "model.decoder.final_layer_norm",
        "project_out": "model.decoder.project_out",
    }
    optional_prefix = "model."

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        factory: dict[str, Any] = {"dtype": dtype, "device": device}
        hidden_size, embedding_dim, split = config.hidden_size, config.embedding_dim, self.split
        projects = embedding_dim != hidden_size
        self.embed_positions = Embedding(split.positions, hidden_size, **factory)
        self.project_in = Linear(embedding_dim, split.hidden, bias=False, **factory) if projects else None
        self.layers = ModuleList(OPTDecoderLayer(config, split, index, **factory) for index in range(config.num_layers))
        self.norm = (
            LayerNorm(hidden_size, config.norm_eps, affine=config.norm_is_affine, **factory)
            if config.final_norm
            else None
        )
        self.project_out = Linear(hidden_size, split.embedding, bias=False, **factory) if projects else None

    def __call__(self, input_ids: Array, positions: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        all_reduce = self.split.group.all_reduce
        tokens, places = self.embed_tokens(input_ids), self.embed_positions(positions + POSITION_OFFSET)
        if self.project_in is None:
            x = all_reduce(ops.add(tokens, places))
        else:
            x = self.split.gather(self.project_in(all_reduce(tokens)), self.split.hidden)
            x = ops.add(x, all_reduce(places))
        for layer, wanted in self.layers_and_rows(rows):
            x = layer(x, attend, rows=wanted)
        return x if self.norm is None else self.norm(x)

    def compute_logits(self, hidden: Array) -> Array:
        if self.project_out is not None:
            hidden = self.split.gather(self.project_out(hidden), self.split.embedding)
        return super().compute_logits(hidden)
