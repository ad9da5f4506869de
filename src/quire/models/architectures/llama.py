"""Llama's decoder. Many architectures are this decoder with other flags in their ModelConfig or other parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from quire.kernels.recorder import begin_layer
from quire.models.base import Attend, CausalLM
from quire.models.experts import SparseMLP
from quire.models.layers import RMSNorm, Sum, add_and_norm, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ConfigReader, ModelConfig, RopeConfig
from quire.models.parallel import ALONE, ModelSplit, ParallelGroup
from quire.models.parallel.split import Share
from quire.models.rotary import RotaryEmbedding, Rotation, rotate_heads
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType
from quire.ops.module import Module, ModuleList


def read_config(reader: ConfigReader) -> ModelConfig:
    return read_decoder_config(reader, "LlamaForCausalLM", reads_biases=("attention_bias", "mlp_bias"))


def read_decoder_config(
    reader: ConfigReader,
    architecture: str,
    *,
    is_tied: bool = False,
    activations: tuple[str, ...] = ("silu", "swish"),
    reads_biases: Sequence[str] = (),
    **flags: Any,
) -> ModelConfig:
    """Read the config of a Llama-like architecture, whose head is tied by default or not. The first of `activations` is
    the default. `reads_biases` names the flags of biases that its configs have: attention_bias, of q, k, v and the
    output, and mlp_bias. `flags` are its other differences, and arguments of `RopeConfig.from_hf`."""
    hidden_size, num_heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    head_dim = flags.pop("head_dim", None) or reader.integer("head_dim", hidden_size // num_heads)
    activation = reader.get("hidden_activation", reader.get("hidden_act", activations[0]))
    if "attention_bias" in reads_biases:
        flags["qkv_bias"] = flags["attention_out_bias"] = reader.flag("attention_bias", False)
    if "mlp_bias" in reads_biases:
        flags["mlp_bias"] = reader.flag("mlp_bias", False)
    rotary = {name: flags.pop(name) for name in ("partial", "is_interleaved", "layer_type") if name in flags}
    reader.refuse_if(
        activation not in activations, f"activation {activation!r} in {architecture}", f"it has {activations[0]}"
    )
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
        tie_word_embeddings=reader.flag("tie_word_embeddings", is_tied),
        rope=RopeConfig.from_hf(reader, head_dim, **rotary),
        dtype=reader.get("dtype", reader.get("torch_dtype")),
        eos_token_ids=reader.token_ids("eos_token_id"),
        initializer_range=reader.number("initializer_range", 0.02),
        **flags,
    )


class LlamaAttention(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        self.index, self.split = index, split
        layer = config.layer_configs[index]
        kv_heads = split.kv_heads(layer.num_kv_heads)
        self.num_heads, self.num_kv_heads, self.head_dim = split.num_heads, kv_heads.size, layer.head_dim
        self.is_interleaved = layer.rope is not None and layer.rope.is_interleaved
        q, kv = split.heads.of_size(layer.head_dim), kv_heads.of_size(layer.head_dim)
        self.qkv_proj = self.make_qkv(config, q, kv, **factory)
        sizes = (q, kv) if config.qk_norm_all_heads else (layer.head_dim, layer.head_dim)
        self.q_norm, self.k_norm = (
            RMSNorm(size, config.norm_eps, offset=config.norm_offset, **factory) if config.qk_norm else None
            for size in sizes
        )
        self.o_proj = Linear(q, config.hidden_size, bias=config.attention_out_bias, group=split.group, **factory)

    def make_qkv(self, config: ModelConfig, q: Share, kv: Share, **factory: Any) -> Linear:
        parts = {"q_proj": q, "k_proj": kv, "v_proj": kv}
        return MergedLinear(config.hidden_size, parts, bias=config.qkv_bias, **factory)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        qkv = self.qkv_proj(x).reshape(len(x), self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        norms = (self.q_norm, self.k_norm) if self.q_norm is not None and self.k_norm is not None else None
        if norms is not None and not norms[0].share.is_whole:
            self._norm_shares(qkv, *norms)
            norms = None
        q, k, v = rotate_heads(qkv, rotation, self.num_heads, self.num_kv_heads, norms, self.is_interleaved)
        out = select_rows(attend(self.index, q, k, v), rows)
        return self.o_proj(out.reshape(len(out), self.num_heads * self.head_dim))

    def _norm_shares(self, qkv: Array, q_norm: RMSNorm, k_norm: RMSNorm) -> None:
        """Norm all ranks' queries and all ranks' keys together."""
        end = self.num_heads + self.num_kv_heads
        for part, norm in ((qkv[:, : self.num_heads], q_norm), (qkv[:, self.num_heads : end], k_norm)):
            part[...] = norm.of_share(part.reshape(len(part), -1), self.split.group).reshape(part.shape)


class LlamaMLP(Module):
    def __init__(self, config: ModelConfig, split: ModelSplit, inner_size: int | None = None, **factory: Any) -> None:
        hidden, inner = config.hidden_size, split.inner if inner_size is None else split.cut_inner(inner_size)
        self.gate_proj = Linear(hidden, inner, bias=config.mlp_bias, **factory)
        self.up_proj = Linear(hidden, inner, bias=config.mlp_bias, **factory)
        self.down_proj = Linear(inner, hidden, bias=config.mlp_bias, group=split.group, **factory)
        self.activation = ops.ACTIVATIONS[config.hidden_act]

    def __call__(self, x: Array) -> Array:
        if self.activation == "silu":
            return self.down_proj(self.gate_proj.gated(x, self.up_proj))
        return self.down_proj(ops.multiply(ops.activate(self.gate_proj(x), self.activation), self.up_proj(x)))


class FusedMLP(Module):
    """A gated MLP with gate and up as one projection, in the checkpoint too unless `gate_and_up_apart`."""

    def __init__(self, config: ModelConfig, split: ModelSplit, **factory: Any) -> None:
        both: dict[str, Any] = dict.fromkeys(("gate_proj", "up_proj"), split.inner)
        self.gate_up_proj = (
            MergedLinear(config.hidden_size, both, bias=config.mlp_bias, **factory)
            if config.gate_and_up_apart
            else Linear(config.hidden_size, split.inner.repeated(2), bias=config.mlp_bias, **factory)
        )
        self.down_proj = Linear(split.inner, config.hidden_size, bias=config.mlp_bias, group=split.group, **factory)

    def __call__(self, x: Array) -> Array:
        return self.down_proj(ops.gate(self.gate_up_proj(x)))

    def addend(self, x: Array) -> Array:
        """Compute this rank's part of the output."""
        return self.down_proj.addend(ops.gate(self.gate_up_proj(x)))


class LlamaDecoderLayer(Module):
    attention_class: ClassVar[type[LlamaAttention]] = LlamaAttention
    attention_name = "self_attn"
    state_class: ClassVar[Any] = None  #: in place of attention in layers with a state
    state_name = ""
    mlp_class: ClassVar[Any] = LlamaMLP
    sparse_mlp_class: ClassVar[Any] = SparseMLP
    #: Names of the norms before attention, after it, before the MLP and after it; None where there is none.
    norm_names: ClassVar[tuple[str | None, ...]] = ("input_layernorm", None, "post_attention_layernorm", None)

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        for name in filter(None, self.norm_names):
            norm = RMSNorm(config.hidden_size, config.norm_eps, offset=config.norm_offset, **factory)
            setattr(self, name, norm)
        self.multiplier = config.residual_multiplier
        attention = self.make_attention(config, split, index, **factory)
        setattr(self, self.attention_name, attention)
        has_experts = config.experts is not None and index not in config.experts.dense_layers
        self.mlp = (self.sparse_mlp_class if has_experts else self.mlp_class)(config, split, **factory)

    def make_attention(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> Module:
        if not config.layer_configs[index].has_state:
            return self.attention_class(config, split, index, **factory)
        self.attention_name = self.state_name
        return self.state_class(config, split, index, **factory)

    def __call__(self, x: Array | Sum, rotation: Rotation | None, attend: Attend, *, rows: Array | None = None) -> Sum:
        norms = [None if name is None else getattr(self, name) for name in self.norm_names]
        x, normed = add_and_norm(x, norms[0])
        attended = self._weighed(getattr(self, self.attention_name)(normed, rotation, attend, rows), norms[1])
        x, normed = add_and_norm(Sum(select_rows(x, rows), attended), norms[2])
        return Sum(x, self._weighed(self.mlp(normed), norms[3]))

    def _weighed(self, output: Array, norm: RMSNorm | None) -> Array:
        return ops.scale(output if norm is None else norm(output), self.multiplier)


class LlamaForCausalLM(CausalLM):
    checkpoint_names: ClassVar = {"embed_tokens": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm"}
    optional_prefix = "model."
    ignored_tensors = re.compile(r".*\.rotary_emb\.inv_freq")
    layer_class: ClassVar[type[LlamaDecoderLayer]] = LlamaDecoderLayer

    def __init__(self, config: ModelConfig, *, dtype: DType, device: str, group: ParallelGroup = ALONE) -> None:
        super().__init__(config, dtype=dtype, device=device, group=group)
        self.embedding_multiplier = config.embedding_multiplier
        self.ropes = dict.fromkeys(layer.rope for layer in config.layer_configs if layer.rope is not None)
        self.rotaries = [RotaryEmbedding(rope) for rope in self.ropes]
        self.layers = ModuleList(
            self.layer_class(config, self.split, index, dtype=dtype, device=device)
            for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, offset=config.norm_offset, dtype=dtype, device=device)

    def __call__(self, input_ids: Array, positions: Array, attend: Attend, *, rows: Array | None = None) -> Array:
        return self.recorded(self.inputs, self._through_layers, attend, input_ids, positions, rows=rows)

    def inputs(self, input_ids: Array, positions: Array) -> list[Array]:
        """Return what the layers read: embeddings and angles."""
        x = self.embed(input_ids)
        return [x, *self.angles(positions, x.dtype)]

    def embed(self, input_ids: Array) -> Array:
        """Return the layers' input."""
        return ops.scale(self.split.group.all_reduce(self.embed_tokens(input_ids)), self.embedding_multiplier)

    def angles(self, positions: Array, dtype: DType) -> list[Array]:
        """Return the arrays of all rotations of a step's positions."""
        return [array for rotary in self.rotaries for array in rotary(positions, dtype)]

    def rotations(self, angles: Sequence[Array]) -> list[Rotation | None]:
        """Return each layer's rotation, from the arrays of `angles`."""
        of_rope: dict[RopeConfig | None, Rotation | None] = {None: None}
        for rope in self.ropes:
            of_rope[rope], angles = tuple(angles[: rope.num_arrays]), angles[rope.num_arrays :]
        return [of_rope[layer.rope] for layer in self.config.layer_configs]

    def _through_layers(self, attend: Attend, x: Array, *angles: Array, rows: Array | None = None) -> Array:
        state: Array | Sum = x
        for rotation, (layer, wanted) in zip(self.rotations(angles), self.layers_and_rows(rows), strict=True):
            begin_layer()
            state = layer(state, rotation, attend, rows=wanted)
        return self.norm.add_and_norm(state)[1]
