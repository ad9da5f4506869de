"""Rotary position embeddings: cosines and sines of a step's positions, and the rotation of queries and keys."""

from __future__ import annotations

import math

import numpy as np

from quire.models.layers import RMSNorm
from quire.models.model_config import RopeConfig
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, as_numpy, as_tensor, is_on_host, name_of, numpy_dtype

Rotation = tuple[Array, ...]
"""cos and sin, each [num_tokens, 1, rotary_dim], the first half of sin negated; and maybe factors on queries,
[num_tokens]."""


class RotaryEmbedding:
    """Computes the cosines and sines of a step's positions, once for all layers."""

    def __init__(self, config: RopeConfig) -> None:
        self._config = config
        self.frequencies, self.scale = inverse_frequencies(config)  # float32 [dim / 2]
        self._on_device: Array = None  #: the same on a GPU

    def __call__(self, positions: Array, dtype: DType) -> Rotation:
        if not isinstance(positions, np.ndarray):
            return self._of_tensors(positions, dtype)
        # Sines of float64 are the same on every machine once rounded; numpy's of float32 are not.
        angles = (positions.astype(np.float32)[:, None] * self.frequencies).astype(np.float64)
        cos, sin = np.cos(angles) * self.scale, np.sin(angles) * self.scale
        rotation = _spread(cos, cos, dtype), _spread(-sin, sin, dtype)
        return rotation if self._config.query_beta is None else (*rotation, self._query_scale(positions, dtype))

    def _query_scale(self, positions: np.ndarray, dtype: DType) -> np.ndarray:
        """Return Llama 4's factor on queries, which grows with each original context before them."""
        contexts = np.floor(positions / self._config["original_max_position_embeddings"])
        return (1 + self._config.query_beta * np.log1p(contexts)).astype(np.float32).astype(dtype)

    def _of_tensors(self, positions: Array, dtype: DType) -> Rotation:
        if is_on_host(positions):
            return tuple(map(as_tensor, self(as_numpy(positions), numpy_dtype(name_of(dtype)))))
        from quire.ops.on_torch import rotation

        if self._on_device is None:
            self._on_device = as_tensor(self.frequencies).to(positions.device)
        found = rotation(positions, self._on_device, self.scale, dtype)
        if self._config.query_beta is None:
            return found
        contexts = positions // int(self._config["original_max_position_embeddings"])
        return (*found, (1 + self._config.query_beta * contexts.double().log1p()).float().to(dtype))


def _spread(first: np.ndarray, second: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Join two halves, float64 [num_tokens, dim / 2], rounded once to float32: [num_tokens, 1, dim]."""
    return np.concatenate((first, second), axis=1, dtype=np.float32, casting="same_kind").astype(dtype)[:, None]


def rotate_heads(
    qkv: Array,
    rotation: Rotation | None,
    num_query_heads: int,
    num_key_heads: int,
    norms: tuple[RMSNorm, RMSNorm] | None,
    is_interleaved: bool = False,
    query_step: int = 1,
) -> tuple[Array, Array, Array]:
    """Split qkv, [num_tokens, heads, dim] and maybe overwritten, into q, k and v, each [num_tokens, its heads, dim];
    norm q and k if there are norms (of queries, of keys), and rotate them if there is a rotation. Queries are
    `query_step` heads apart."""
    weights = (
        (None, None, 0.0, 0.0) if norms is None else (norms[0].weight, norms[1].weight, norms[0].eps, norms[0].offset)
    )
    if rotation is not None or norms is not None:
        angles = (*(rotation or ()), None, None, None)[:3]
        qkv = ops.rotate_heads(qkv, *angles, num_query_heads, num_key_heads, *weights, is_interleaved, query_step)
    keys, end = num_query_heads * query_step, num_query_heads * query_step + num_key_heads
    return qkv[:, :keys:query_step], qkv[:, keys:end], qkv[:, end:]


def inverse_frequencies(config: RopeConfig) -> tuple[np.ndarray, float]:
    """Return the radians per position of each pair of dimensions ([dim / 2], float32), and a factor on cos and sin.

    llama3: Meta's reference for Llama 3.1. It slows down the pairs that turn less than once in the original context.
    yarn: arXiv 2309.00071, section 3.2 (NTK by parts).
    proportional: Gemma 4's. The slowest pairs do not turn.
    longrope: arXiv 2402.13753, with the factors of the original context.
    """
    exponents = np.arange(0, config.dim, 2, dtype=np.float32) / np.float32(config.dim)
    wavelengths = (np.float64(config.theta) ** exponents).astype(np.float32)
    if config.rope_type == "longrope":
        wavelengths *= np.asarray(config.short_factors, np.float32)
        return np.float32(1.0) / wavelengths, config["attention_factor"]
    inv_freq = np.float32(1.0) / wavelengths
    if config.rope_type == "proportional":
        inv_freq[int(config["rotated"]) :] = 0
        return inv_freq / config["factor"], 1.0
    if config.rope_type == "linear":
        return inv_freq / config["factor"], 1.0
    if config.rope_type == "llama3":
        original, low, high = (
            config[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        turns = original * inv_freq / (2 * math.pi)  # in the original context
        keep = ((turns - low) / (high - low)).clip(0, 1)  # 1: fast, as it was; 0: slow, divided by factor
        return inv_freq * keep + inv_freq / config["factor"] * (1 - keep), 1.0
    if config.rope_type == "yarn":
        low, high = (_dimension_that_turns(config, config[k]) for k in ("beta_fast", "beta_slow"))
        if config["truncate"]:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, config.dim - 1)
        ramp = np.arange(config.dim // 2, dtype=np.float32)
        keep = 1 - ((ramp - low) / ((high - low) or 0.001)).clip(0, 1)
        return inv_freq / config["factor"] * (1 - keep) + inv_freq * keep, config["attention_factor"]
    return inv_freq, 1.0


def _dimension_that_turns(config: RopeConfig, times: float) -> float:
    original = config["original_max_position_embeddings"]
    return config.dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(config.theta))
