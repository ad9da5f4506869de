"""The shape of a model, from a `config.json` of transformers 4 or 5. Unsupported features are refused by name."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from quire.models.encodings import QuantizedWeights
from quire.models.states.config import StateConfig

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_MAX_INTEGER, _MAX_NUMBER = 2**31, 1e15  # beyond them sizes overflow
ROPE_TYPES = ("default", "linear", "llama3", "yarn", "longrope", "dynamic", "proportional")


class ModelConfigError(ValueError):
    """A config is incomplete or contradicts itself."""


class UnsupportedModelError(ModelConfigError):
    """A model is not supported; the message names the feature."""


class ConfigReader:
    """Typed access to a `config.json`. Errors name the field and the expected value."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default if it is absent or null."""
        value = self.values.get(name)
        return default if value is None else value

    def with_defaults(self, defaults: Mapping[str, Any]) -> ConfigReader:
        """Return a reader of the config with these values for absent fields."""
        return ConfigReader({**defaults, **self.values})

    def replaced(self, **values: Any) -> ConfigReader:
        """Return a reader of the config with these values instead."""
        return ConfigReader({**self.values, **values})

    def _required(self, name: str, default: Any) -> Any:
        value = self.get(name, default)
        if value is None:
            raise ModelConfigError(f"the config has no {name!r}; take config.json from the model's original repository")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _MAX_INTEGER:
            raise ModelConfigError(f"the config's {name} is {value!r:.100}; expected a positive integer below 2**31")
        return value

    def count(self, name: str) -> int:
        """Return an integer that may be absent, null or 0."""
        return self.integer(name) if self.get(name) else 0

    def number(self, name: str, default: float | None = None) -> float:
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MAX_NUMBER:
            raise ModelConfigError(f"the config's {name} is {value!r:.100}; expected a positive number below 1e15")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ModelConfigError(f"the config's {name} is {value!r}; expected true or false")
        return value

    def layer_types(self, default: Sequence[str], other: str = "sliding_attention") -> tuple[str, ...]:
        """Return full_attention or another kind for each layer. The default may be longer."""
        num_layers = self.integer("num_hidden_layers")
        kinds = self.get("layer_types", list(default[:num_layers]))
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise ModelConfigError(f"the config's layer_types is {kinds!r:.100}; expected one for each of {num_layers}")
        others = [kind for kind in kinds if kind not in ("full_attention", other)]
        self.refuse_if(others, f"the layer type {(others or [''])[0]!r:.100}")
        return tuple(kinds)

    def windows(self, window: int, default: Sequence[str]) -> list[int]:
        """Return each layer's sliding window, 0 for full attention. `default` is that of `layer_types`."""
        return [window * (kind == "sliding_attention") for kind in self.layer_types(default)]

    def token_ids(self, name: str, default: int | None = None) -> tuple[int, ...]:
        """Return one id or a list of ids as a tuple."""
        value = self.get(name, default)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
            raise ModelConfigError(f"the config's {name} is {value!r}; expected a token id or a list of them")
        return tuple(ids)

    def refuse_if(self, condition: Any, what: str, hint: str = "") -> None:
        """Raise UnsupportedModelError("<what> is not supported") if the condition holds."""
        if condition:
            raise UnsupportedModelError(f"{what} is not supported" + (f"; {hint}" if hint else ""))


@dataclass(frozen=True)
class RopeConfig:
    """Parameters of rotary position embeddings. `scaling` is linear (factor), llama3 (factor, low_freq_factor,
    high_freq_factor, original_max_position_embeddings), yarn (factor, beta_fast, beta_slow, attention_factor,
    truncate, original_max_position_embeddings), longrope (attention_factor, original_max_position_embeddings) or
    proportional (factor, rotated: the number of pairs that turn)."""

    rope_type: str
    theta: float
    dim: int  #: rotated features of a head, the first ones
    scaling: tuple[tuple[str, float], ...] = ()
    short_factors: tuple[float, ...] = ()  #: longrope: divisors of the frequencies within the original context
    is_interleaved: bool = False  #: rotates the pairs (2i, 2i + 1) instead of (i, i + dim / 2)
    query_beta: float | None = None  #: queries grow by beta * log(1 + number of original contexts before them)

    def __getitem__(self, name: str) -> float:
        return dict(self.scaling)[name]

    @property
    def num_arrays(self) -> int:
        """The number of arrays in a `Rotation`."""
        return 2 if self.query_beta is None else 3

    def context_length(self, max_position_embeddings: int) -> int:
        """Return the longest sequence: llama3 configs give it after scaling, linear and yarn before. The frequencies of
        longrope and dynamic change with the length of a sequence beyond the original context, which invalidates earlier
        KV: they end there."""
        if self.rope_type == "longrope":
            return int(min(max_position_embeddings, self["original_max_position_embeddings"]))
        if self.rope_type == "linear":
            return int(max_position_embeddings * self["factor"])
        if self.rope_type == "yarn":
            return max(max_position_embeddings, int(self["original_max_position_embeddings"] * self["factor"]))
        return max_position_embeddings

    @classmethod
    def from_hf(
        cls,
        reader: ConfigReader,
        head_dim: int,
        *,
        partial: float | None = None,
        is_interleaved: bool = False,
        layer_type: str | None = None,
    ) -> RopeConfig:
        """Read `rope_parameters` (transformers 5), maybe of a layer type, or `rope_theta` and `rope_scaling`
        (transformers 4). `partial` is the default of partial_rotary_factor, None for an architecture without it."""
        parameters = reader.get("rope_parameters") or reader.get("rope_scaling") or {}
        if layer_type is not None and isinstance(parameters, Mapping):
            parameters = parameters.get(layer_type, parameters)
        if not isinstance(parameters, Mapping):
            raise ModelConfigError(f"the config's RoPE parameters are {parameters!r}; expected an object")
        reader.refuse_if(
            any(isinstance(value, Mapping) for value in parameters.values()), "RoPE that differs between layers"
        )
        rope = ConfigReader(parameters)
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        theta = rope.number("rope_theta", reader.number("rope_theta", 10000.0))
        part = rope.number("partial_rotary_factor", reader.number("partial_rotary_factor", partial or 1.0))
        max_positions = reader.integer("max_position_embeddings", 2048)
        rope_type = "longrope" if rope_type == "su" else rope_type
        is_partial = partial is not None or rope_type == "proportional"
        reader.refuse_if(
            part > 1 or (part < 1 and not is_partial), f"partial_rotary_factor={part:g} in this architecture"
        )
        if rope_type not in ROPE_TYPES:
            raise UnsupportedModelError(
                f"RoPE type {rope_type!r} is not supported; supported types: {', '.join(ROPE_TYPES)}"
            )
        scaling = _read_scaling(rope_type, rope, reader, max_positions)
        if rope_type == "proportional":
            scaling["rotated"], part = int(part * head_dim // 2), 1.0
        dim = int(head_dim * part)
        short_factors = _read_factors(rope, dim // 2) if rope_type == "longrope" else ()
        beta = None if rope.get("llama_4_scaling_beta") is None else rope.number("llama_4_scaling_beta")
        if rope_type == "dynamic":
            rope_type = "default"  # what it is up to max_position_embeddings
        return cls(rope_type, theta, dim, tuple(sorted(scaling.items())), short_factors, is_interleaved, beta)


def _read_scaling(rope_type: str, rope: ConfigReader, reader: ConfigReader, max_positions: int) -> dict[str, float]:
    scaling: dict[str, float] = {}
    original = "original_max_position_embeddings"
    if rope_type in ("llama3", "yarn", "longrope") or rope.get("llama_4_scaling_beta") is not None:
        scaling[original] = reader.number(original, rope.number(original, max_positions))
    if rope_type in ("linear", "llama3", "proportional"):
        scaling["factor"] = rope.number("factor", 1.0 if rope_type == "proportional" else None)
    if rope_type == "llama3":
        scaling["low_freq_factor"] = rope.number("low_freq_factor")
        scaling["high_freq_factor"] = rope.number("high_freq_factor")
    if rope_type == "yarn":
        factor = rope.number("factor", max_positions / scaling[original])
        scaling["factor"] = factor
        scaling["beta_fast"] = rope.number("beta_fast", 32.0)
        scaling["beta_slow"] = rope.number("beta_slow", 1.0)
        scaling["truncate"] = float(rope.flag("truncate", True))
        scaling["attention_factor"] = rope.number("attention_factor", _yarn_attention_factor(rope, factor))
    if rope_type == "longrope":
        factor = max(1.0, rope.number("factor", max_positions / scaling[original]))
        grown = math.sqrt(1 + math.log(factor) / math.log(scaling[original]))
        scaling["attention_factor"] = rope.number("attention_factor", grown)
    return scaling


def _read_factors(rope: ConfigReader, count: int) -> tuple[float, ...]:
    factors = rope.get("short_factor")
    if not isinstance(factors, list) or len(factors) != count:
        raise ModelConfigError(f"the config's short_factor is {factors!r:.100}; expected {count} numbers")
    return tuple(ConfigReader({"short_factor": each}).number("short_factor") for each in factors)


def _yarn_attention_factor(rope: ConfigReader, factor: float) -> float:
    """Return YaRN's factor on attention (arXiv 2309.00071, section 3.4; mscale is DeepSeek's refinement)."""

    mscale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    if mscale and all_dim:
        return yarn_sharpening(factor, mscale) / yarn_sharpening(factor, all_dim)
    return yarn_sharpening(factor, 1.0)


def yarn_sharpening(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True)
class LatentConfig:
    """Multi-head latent attention: features of its parts."""

    rank: int  #: of a token's latent, the values
    nope_dim: int  #: of a query head without position
    rope_dim: int  #: of a rotated query head, and of the key beside a latent
    value_dim: int  #: of a head's output
    query_rank: int = 0  #: of a token's latent of queries; 0: queries have none

    def num_parameters(self, hidden: int, num_heads: int) -> int:
        """Return the number of a layer's weights up to the heads' outputs, without biases."""
        q_size, rank = num_heads * (self.nope_dim + self.rope_dim), self.query_rank
        queries = rank * (hidden + 1 + q_size) if rank else hidden * q_size
        latents = hidden * (self.rank + self.rope_dim) + self.rank
        return queries + latents + self.rank * num_heads * (self.nope_dim + self.value_dim)


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts in place of a layer's MLP."""

    count: int
    chosen: int  #: for each token
    inner: int  #: features inside an expert
    scores: str = "softmax"  #: of the router's logits: softmax, sigmoid, or softmax_of_chosen
    normalizes: bool = True  #: the chosen experts' scores to a sum of 1
    scale: float = 1.0  #: of the chosen experts' outputs
    shared_inner: int = 0  #: features inside an expert of all tokens; 0 for none
    shared_gate: bool = False  #: whether that expert's output is multiplied by a gate
    dense_layers: tuple[int, ...] = ()  #: layers with an ordinary MLP
    is_beside_mlp: bool = False  #: beside each layer's MLP instead, as in Gemma 4
    num_groups: int = 1  #: of experts; only experts of the best groups are chosen
    num_chosen_groups: int = 1
    num_of_group: int = 1  #: best scores, whose sum is a group's score
    has_choice_bias: bool = False  #: whether the choice, not the weights, adds a bias to scores
    has_float_logits: bool = False  #: whether the router computes in float32, whatever the model's dtype
    has_biases: bool = False  #: of the router and of each expert's layers
    limit: float = 0.0  #: of gate and up in the clamped SwiGLU of gpt-oss; 0: silu or the model's activation
    alpha: float = 0.0  #: that one's factor inside the sigmoid

    def __post_init__(self) -> None:
        if self.chosen > self.count:
            raise ModelConfigError(f"the config chooses {self.chosen} of {self.count} experts")
        size = self.count // self.num_groups
        chosen = size * self.num_chosen_groups
        if size * self.num_groups != self.count or not self.chosen <= chosen <= self.count or self.num_of_group > size:
            raise ModelConfigError(
                f"the config chooses {self.chosen} experts from {self.num_chosen_groups} of {self.num_groups} groups, "
                f"which {self.count} experts do not allow"
            )

    def num_parameters(self, hidden: int, num_experts: int) -> int:
        """Return the number of weights of a layer's router and some of its experts."""
        biases = num_experts * (2 * self.inner + hidden) * self.has_biases
        weights = 3 * hidden * (num_experts * self.inner + self.shared_inner)
        return self.num_router_parameters(hidden) + weights + biases

    def num_router_parameters(self, hidden: int) -> int:
        return hidden * (self.count + self.shared_gate) + self.count * (self.has_choice_bias + self.has_biases)


#: Fields of ModelConfig that never change KV. All others, new ones included, are part of the namespace.
NOT_ARITHMETIC = {
    "dtype": "the namespace has the dtype in use instead",
    "eos_token_ids": "they end an output",
    "initializer_range": "it is part of the digest of random weights",
    "max_position_embeddings": "it limits a sequence; RoPE's scaling is in `rope`",
    "logits_multiplier": "the head comes after all KV",
    "text_of": "the weights' digest has all tensors",
    "logits_softcap": "the head comes after all KV",
    "tie_word_embeddings": "the head comes after all KV",
}


@dataclass(frozen=True)
class LayerConfig:
    """The values of a layer that may differ between the layers of a model."""

    num_kv_heads: int
    head_dim: int
    rope: RopeConfig | None
    window: int = 0  #: number of last tokens that a query sees, itself included; 0: all
    reads_layer: int | None = None  #: an earlier layer whose KV it attends to, instead of its own
    values_are_keys: bool = False  #: values come from the keys' projection
    intermediate_size: int = 0  #: 0: the model's
    has_state: bool = False  #: a recurrent state instead of KV; the values above do not matter


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. The flags at the end tell the architectures apart."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_eps: float
    hidden_act: str
    tie_word_embeddings: bool
    rope: RopeConfig | None  #: None: positions are learned embeddings
    dtype: str | None = None  #: the checkpoint's, if stated
    eos_token_ids: tuple[int, ...] = ()
    initializer_range: float = 0.02  #: standard deviation of random weights
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    gated_mlp: bool = True  #: act(gate) * up instead of act(up)
    gate_and_up_apart: bool = False  #: in checkpoints of Granite 4, which otherwise join them
    qk_norm: bool = False  #: RMSNorm over each head's q and k
    qk_norm_all_heads: bool = False  #: one over all heads' q and one over all heads' k instead
    norm_has_bias: bool = False  #: LayerNorm instead of RMSNorm
    norm_offset: float = 0.0  #: added to the weights of RMSNorms
    norm_is_affine: bool = True
    norm_before: bool = True  #: norms before attention and MLP
    norm_outputs: bool = False  #: norms of the outputs of attention and MLP, before they are added
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0  #: of the outputs of attention and MLP, before they are added
    logits_multiplier: float = 1.0
    quantized: QuantizedWeights | None = None  #: the encoding of a quantized checkpoint
    text_of: str = ""  #: the multimodal architecture whose text part this is
    logits_softcap: float = 0.0  #: logits become cap * tanh(logits / cap); 0: they stay
    final_norm: bool = True
    embedding_dim: int = 0  #: width of the token table; 0 means hidden_size. OPT-350m projects up from it
    num_position_rows: int = 0  #: rows of the learned position table
    layers: tuple[LayerConfig, ...] = ()  #: where layers differ, what they have instead of the values above
    attention_scale: float = 0.0  #: of scores; 0 means head_dim ** -0.5
    per_layer_size: int = 0  #: width of the input that each layer gets from an embedding of its own
    attention_softcap: float = 0.0  #: scores become cap * tanh(score / cap); 0: they stay
    experts: ExpertsConfig | None = None
    latent: LatentConfig | None = None  #: `head_dim` is that of a latent and its key
    has_attention_gate: bool = False  #: attention's output is multiplied by a gate from the input
    state: StateConfig | None = None  #: of layers with one

    def __post_init__(self) -> None:
        for field, value, most in (("num_hidden_layers", self.num_layers, 10_000), ("head_dim", self.head_dim, 2**16)):
            if value > most:
                raise ModelConfigError(f"the config's {field} is {value}; at most {most} are supported")
        if self.num_heads % self.num_kv_heads:
            raise ModelConfigError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} KV heads evenly; "
                "num_attention_heads must be a multiple of num_key_value_heads"
            )
        if self.rope is not None and self.rope.dim % 2:
            raise ModelConfigError(f"head_dim is {self.head_dim}; rotary positions need an even one")
        if not self.embedding_dim:
            object.__setattr__(self, "embedding_dim", self.hidden_size)
        if self.layers and len(self.layers) != self.num_layers:
            raise ModelConfigError(f"the config describes {len(self.layers)} of {self.num_layers} layers")

    def with_layers(
        self, windows: Sequence[int | None], ropes: Sequence[RopeConfig | None] | None = None
    ) -> ModelConfig:
        """Return this config with each layer's sliding window (None and 0: none), and maybe each one's positions."""
        given = zip(self.layer_configs, windows, ropes or [each.rope for each in self.layer_configs], strict=True)
        layers = tuple(replace(layer, window=window or 0, rope=rope) for layer, window, rope in given)
        return self if layers == self.layer_configs else replace(self, layers=layers)

    @cached_property
    def layer_configs(self) -> tuple[LayerConfig, ...]:
        return self.layers or (LayerConfig(self.num_kv_heads, self.head_dim, self.rope),) * self.num_layers

    @property
    def context_length(self) -> int:
        """The longest sequence that the positions allow."""
        limit = self.max_position_embeddings
        return limit if self.rope is None else self.rope.context_length(limit)

    @property
    def arithmetic(self) -> str:
        """A digest of all values that KV depends on, except the weights. A default is left out, so that a new field
        changes no digest."""
        defaults = {field.name: field.default for field in fields(self)}
        values = {
            name: value
            for name, value in asdict(self).items()
            if name not in NOT_ARITHMETIC and value != defaults[name]
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """The number of weights, with a tied head counted once."""
        return self._count_parameters(0 if self.experts is None else self.experts.count)

    @property
    def num_active_parameters(self) -> int:
        """The number of weights that a token is multiplied by or looked up in."""
        return self._count_parameters(0 if self.experts is None else self.experts.chosen)

    def _count_parameters(self, num_experts: int) -> int:
        hidden, norm = self.hidden_size, self.hidden_size * (1 + self.norm_has_bias) * self.norm_is_affine
        total = self.vocab_size * self.embedding_dim * (1 if self.tie_word_embeddings else 2)
        total += self.num_position_rows * hidden + norm * self.final_norm
        total += sum(self._layer_parameters(index, num_experts) for index in range(self.num_layers))
        if self.embedding_dim != hidden:
            total += 2 * self.embedding_dim * hidden
        if own := self.per_layer_size:
            total += self.num_layers * (own * (self.vocab_size + 3 * hidden) + hidden) + own
        return total

    def _layer_parameters(self, index: int, num_experts: int) -> int:
        hidden, layer = self.hidden_size, self.layer_configs[index]
        q_size, kv_size = self.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
        has_kv = layer.reads_layer is None
        qkv_size = q_size + kv_size * has_kv * (1 if layer.values_are_keys else 2)
        qkv_size += q_size * self.has_attention_gate
        count = hidden * qkv_size + qkv_size * self.qkv_bias
        if self.latent is not None:
            q_size = self.num_heads * self.latent.value_dim
            count = self.latent.num_parameters(hidden, self.num_heads)
            count += (self.latent.query_rank + layer.head_dim) * self.qkv_bias
        count += q_size * hidden + hidden * self.attention_out_bias
        count += (q_size + kv_size if self.qk_norm_all_heads else layer.head_dim * (1 + has_kv)) * self.qk_norm
        if layer.has_state and self.state is not None:
            count = self.state.num_parameters(hidden)
        norm = hidden * (1 + self.norm_has_bias) * self.norm_is_affine
        count += 2 * norm * (1 + (self.norm_before and self.norm_outputs))
        count += self.architecture == "Gemma4ForCausalLM"  # its layer's scalar
        count += self.num_heads * (self.architecture == "GptOssForCausalLM")  # sinks
        if self.experts is not None and index not in self.experts.dense_layers:
            count += self.experts.num_parameters(hidden, num_experts)
            if not self.experts.is_beside_mlp:
                return count
            count += hidden + self.experts.count + 3 * norm  # scales of the router, norms
        inner = layer.intermediate_size or self.intermediate_size
        count += hidden * inner * (3 if self.gated_mlp else 2)
        return count + (inner * (2 if self.gated_mlp else 1) + hidden) * self.mlp_bias

    def weight_bytes(self, dtype: str) -> int:
        wide = 0  # number of weights that are always float32
        if self.experts is not None and self.experts.has_float_logits:
            num_mixtures = self.num_layers - len(self.experts.dense_layers)
            wide = num_mixtures * self.experts.num_router_parameters(self.hidden_size)
        return self.num_parameters * _itemsize(dtype) + wide * (4 - _itemsize(dtype))

    def kv_bytes(self, dtype: str, num_tokens: int = 1) -> int:
        """Return the bytes of a sequence's K and V in all layers. Those with a window keep no more than its tokens."""
        stored = (each for each in self.layer_configs if each.reads_layer is None and not each.has_state)
        parts = 2 if self.latent is None else 1
        return sum(
            parts * each.num_kv_heads * each.head_dim * min(num_tokens, each.window or num_tokens) for each in stored
        ) * _itemsize(dtype)


def _itemsize(dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def check_tokenizer_fits(config: ModelConfig, tokenizer_vocab_size: int) -> None:
    """Raise ValueError if the tokenizer has more ids than the embedding has rows."""
    if tokenizer_vocab_size > config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer_vocab_size} token ids, the model's embedding only {config.vocab_size} rows: "
            "they belong to different models, or tokens were added without enlarging the embedding. Use the "
            "checkpoint's own tokenizer files, or pass skip_tokenizer_init=True and send token ids"
        )
