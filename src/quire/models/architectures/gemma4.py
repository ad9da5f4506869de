"""Gemma 4: local and global layers with heads of their own sizes, norms of values, and in E2B and E4B an embedding per
layer and layers that read the KV of earlier ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from quire.kernels.recorder import begin_layer
from quire.models.architectures.gemma import ACTIVATIONS, rounded
from quire.models.architectures.llama import LlamaForCausalLM, LlamaMLP, read_decoder_config
from quire.models.base import Attend
from quire.models.experts import ExpertRouter, Experts
from quire.models.layers import Embedding, RMSNorm, Sum, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import (
    ConfigReader,
    ExpertsConfig,
    LayerConfig,
    ModelConfig,
    ModelConfigError,
    RopeConfig,
)
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.models.rotary import Rotation, rotate_heads
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, empty, is_on_host, to_host, widen
from quire.ops.module import Module

#: Values that configs leave out.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_144, "max_position_embeddings": 131_072, "eos_token_id": 1,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip


def read_config(reader: ConfigReader) -> ModelConfig:
    reader = reader.with_defaults(_DEFAULTS)
    is_bidirectional = reader.get("use_bidirectional_attention") == "all"
    reader.refuse_if(is_bidirectional, "bidirectional attention")
    head_dim = reader.integer("head_dim", 256)
    config = read_decoder_config(
        reader,
        architecture="Gemma4ForCausalLM",
        is_tied=True,
        activations=ACTIVATIONS,
        head_dim=head_dim,
        layer_type="sliding_attention",
        reads_biases=("attention_bias",),
        qk_norm=True,
        norm_outputs=True,
        attention_scale=1.0,
        logits_softcap=reader.number("final_logit_softcapping") if reader.get("final_logit_softcapping") else 0.0,
        embedding_multiplier=reader.integer("hidden_size") ** 0.5,
        per_layer_size=reader.count("hidden_size_per_layer_input"),
        experts=_read_experts(reader) if reader.flag("enable_moe_block", False) else None,
    )
    return replace(config, layers=_read_layers(reader, config))


def _read_experts(reader: ConfigReader) -> ExpertsConfig:
    return ExpertsConfig(
        count=reader.integer("num_experts"),
        chosen=reader.integer("top_k_experts"),
        inner=reader.integer("moe_intermediate_size"),
        is_beside_mlp=True,
    )


def _read_layers(reader: ConfigReader, config: ModelConfig) -> tuple[LayerConfig, ...]:
    count = config.num_layers
    default = ["full_attention" if not (i + 1) % 6 or i + 1 == count else "sliding_attention" for i in range(count)]
    kinds = reader.layer_types(default)
    num_shared = reader.count("num_kv_shared_layers")
    first_shared = count - num_shared
    if num_shared and not set(kinds[first_shared:]) <= set(kinds[: max(0, first_shared)]):
        raise ModelConfigError(f"the config's num_kv_shared_layers is {num_shared}; no earlier layer has KV to share")
    has_equal_values = reader.flag("attention_k_eq_v", False)
    global_heads = reader.integer("num_global_key_value_heads", config.num_kv_heads) if has_equal_values else 0
    sizes = {"head_dim": reader.integer("global_head_dim", 512), "num_kv_heads": global_heads or config.num_kv_heads}
    per_layer = reader.get("per_layer_config", {})  # as transformers 5 saves it
    layers = []
    for index, kind in enumerate(kinds):
        is_global, is_shared = kind == "full_attention", index >= first_shared
        own = ConfigReader(per_layer.get(str(index), {}))
        rope = RopeConfig.from_hf(
            reader, own.integer("head_dim", sizes["head_dim"]) if is_global else config.head_dim, layer_type=kind
        )
        layers.append(
            LayerConfig(
                own.integer("num_key_value_heads", sizes["num_kv_heads"]) if is_global else config.num_kv_heads,
                rope.dim,
                rope,
                window=0 if is_global else reader.integer("sliding_window", 512),
                reads_layer=max(i for i in range(first_shared) if kinds[i] == kind) if is_shared else None,
                values_are_keys=is_global and has_equal_values,
                intermediate_size=config.intermediate_size
                * (2 if is_shared and reader.flag("use_double_wide_mlp", False) else 1),
            )
        )
    return tuple(layers)


class Gemma4Attention(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.index, self.layer, self.num_heads = index, config.layer_configs[index], split.num_heads
        layer, self.eps = self.layer, config.norm_eps
        kv_heads = split.kv_heads(layer.num_kv_heads)
        q, kv = split.heads.of_size(layer.head_dim), kv_heads.of_size(layer.head_dim)
        parts = {"q_proj": q}
        if layer.reads_layer is None:
            parts["k_proj"] = kv
            if not layer.values_are_keys:
                parts["v_proj"] = kv
        self.num_kv_heads = kv_heads.size
        self.qkv_proj = MergedLinear(config.hidden_size, parts, bias=config.qkv_bias, **factory)
        self.q_norm = RMSNorm(layer.head_dim, config.norm_eps, **factory)
        self.k_norm = None if layer.reads_layer is not None else RMSNorm(layer.head_dim, config.norm_eps, **factory)
        self.o_proj = Linear(q, config.hidden_size, bias=config.attention_out_bias, group=split.group, **factory)

    def __call__(self, x: Array, rotation: Rotation, attend: Attend, rows: Array | None) -> Array:
        layer, num_heads, num_kv_heads = self.layer, self.num_heads, self.num_kv_heads
        qkv = self.qkv_proj(x).reshape(len(x), -1, layer.head_dim)
        if self.k_norm is None:
            q, _, _ = rotate_heads(qkv, rotation, num_heads, 0, (self.q_norm, self.q_norm))
            out = attend(self.index, q, None, None)
        else:
            first = num_heads if layer.values_are_keys else num_heads + num_kv_heads
            v = ops.norm_heads(qkv, first, num_kv_heads, self.eps)
            q, k, _ = rotate_heads(qkv, rotation, num_heads, num_kv_heads, (self.q_norm, self.k_norm))
            out = attend(self.index, q, k, v)
        out = select_rows(out, rows)
        return self.o_proj(out.reshape(len(out), num_heads * layer.head_dim))


class Gemma4Router(Module):
    """Scores of experts, from a norm of the residual stream."""

    def __init__(self, config: ModelConfig, **factory: Any) -> None:
        assert config.experts is not None
        self.eps, self.multiplier = config.norm_eps, config.hidden_size**-0.5
        self.proj = ExpertRouter(config.hidden_size, config.experts.count, bias=False, **factory)
        self.scale = empty((config.hidden_size,), **factory)
        self.per_expert_scale = empty((config.experts.count,), **factory)

    def __call__(self, x: Array) -> Array:
        return self.proj(ops.scale(ops.rms_norm(x, self.scale, self.eps), self.multiplier))


class Gemma4DecoderLayer(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        size, eps = config.hidden_size, config.norm_eps
        self.input_layernorm = RMSNorm(size, eps, **factory)
        self.self_attn = Gemma4Attention(config, split, index, **factory)
        self.post_attention_layernorm = RMSNorm(size, eps, **factory)
        self.pre_feedforward_layernorm = RMSNorm(size, eps, **factory)
        self.mlp = LlamaMLP(config, split, config.layer_configs[index].intermediate_size, **factory)
        self.post_feedforward_layernorm = RMSNorm(size, eps, **factory)
        self.layer_scalar = empty((1,), **factory)
        self.router = self.experts = None
        if config.experts is not None:
            self.router, self.experts = Gemma4Router(config, **factory), Experts(config, split, **factory)
            self.post_feedforward_layernorm_1 = RMSNorm(size, eps, **factory)
            self.pre_feedforward_layernorm_2 = RMSNorm(size, eps, **factory)
            self.post_feedforward_layernorm_2 = RMSNorm(size, eps, **factory)
            self._group = split.group
        if config.per_layer_size:
            self.per_layer_input_gate = Linear(size, config.per_layer_size, bias=False, **factory)
            self.per_layer_projection = Linear(config.per_layer_size, size, bias=False, **factory)
            self.post_per_layer_input_norm = RMSNorm(size, eps, **factory)

    def __call__(
        self,
        x: Array | Sum,
        rotation: Rotation,
        attend: Attend,
        per_layer_input: Array | None,
        *,
        rows: Array | None = None,
    ) -> Array:
        x, normed = self.input_layernorm.add_and_norm(x)
        attended = self.post_attention_layernorm(self.self_attn(normed, rotation, attend, rows))
        x, normed = self.pre_feedforward_layernorm.add_and_norm(Sum(select_rows(x, rows), attended))
        y = self.mlp(normed)
        if self.router is not None and self.experts is not None:
            y = ops.add(self.post_feedforward_layernorm_1(y), self._of_experts(x, self.router, self.experts))
        x = ops.add(x, self.post_feedforward_layernorm(y))
        if per_layer_input is not None:
            gate = ops.activate(self.per_layer_input_gate(x), "gelu_tanh")
            added = self.per_layer_projection(ops.multiply(gate, select_rows(per_layer_input, rows)))
            x = ops.add(x, self.post_per_layer_input_norm(added))
        return ops.scale(x, float(self.layer_scalar[0])) if is_on_host(x) else ops.multiply(x, self.layer_scalar)

    def _of_experts(self, x: Array, router: Gemma4Router, experts: Experts) -> Array:
        if experts.factors is None:
            scale = widen(router.per_expert_scale)
            experts.factors = np.array(to_host(scale), np.float32) if is_on_host(scale) else scale
        y = experts(self.pre_feedforward_layernorm_2(x), router(x))
        return self.post_feedforward_layernorm_2(self._group.all_reduce(y))


class Gemma4ForCausalLM(LlamaForCausalLM):
    checkpoint_names: ClassVar = {
        "embed_tokens": "model.embed_tokens",
        "embed_tokens_per_layer": "model.embed_tokens_per_layer",
        "per_layer_model_projection": "model.per_layer_model_projection",
        "per_layer_projection_norm": "model.per_layer_projection_norm",
        "layers": "model.layers",
        "norm": "model.norm",
    }
    layer_class: ClassVar[Any] = Gemma4DecoderLayer

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        factory: dict[str, Any] = {"dtype": dtype, "device": device}
        self.embedding_multiplier = rounded(config.embedding_multiplier, dtype)
        shared = "|".join(str(i) for i, layer in enumerate(config.layer_configs) if layer.reads_layer is not None)
        if shared:  # published files have keys and values for these layers too
            name = r"self_attn\.[kv]_(proj|norm)|attn_[kv](_norm)?"
            self.ignored_tensors = re.compile(rf".*\b(layers|blk)\.({shared})\.({name})\..*")
        self.embed_tokens_per_layer: Embedding | None = None
        self.per_layer_model_projection: Linear | None = None
        self.per_layer_projection_norm: RMSNorm | None = None
        if size := config.per_layer_size:
            all_sizes = config.num_layers * size
            self.per_layer_multiplier = rounded(size**0.5, dtype)
            self.embed_tokens_per_layer = Embedding(self.split.vocab, all_sizes, **factory)
            self.per_layer_model_projection = Linear(config.hidden_size, all_sizes, bias=False, **factory)
            self.per_layer_projection_norm = RMSNorm(size, config.norm_eps, **factory)

    def inputs(self, input_ids: Array, positions: Array) -> list[Array]:
        inputs = super().inputs(input_ids, positions)
        if self.config.per_layer_size:
            inputs.append(self._per_layer_inputs(input_ids, inputs[0]))
        return inputs

    def _per_layer_inputs(self, input_ids: Array, x: Array) -> Array:
        """Return each layer's own input: [num_layers, num_tokens, per_layer_size]."""
        assert self.embed_tokens_per_layer is not None
        assert self.per_layer_model_projection is not None
        assert self.per_layer_projection_norm is not None
        tokens = self.split.group.all_reduce(self.embed_tokens_per_layer(input_ids))
        tokens = ops.scale(tokens, self.per_layer_multiplier)
        context = ops.scale(self.per_layer_model_projection(x), self.config.hidden_size**-0.5)
        shape = (len(x), self.config.num_layers, self.config.per_layer_size)
        normed = self.per_layer_projection_norm(context.reshape(-1, shape[-1])).reshape(tokens.shape)
        return ops.scale(ops.add(normed, tokens), 2**-0.5).reshape(shape).swapaxes(0, 1)

    def _through_layers(self, attend: Attend, x: Array, *inputs: Array, rows: Array | None = None) -> Array:
        rotations = self.rotations(inputs)
        own = inputs[-1] if self.config.per_layer_size else [None] * self.config.num_layers
        state: Array | Sum = x
        for index, (layer, wanted) in enumerate(self.layers_and_rows(rows)):
            begin_layer()
            state = layer(state, rotations[index], attend, own[index], rows=wanted)
        return self.norm.add_and_norm(state)[1]
