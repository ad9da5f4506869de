"""Rotary position embeddings: cosines and sines of a step's positions, and the rotation of queries and keys."""

from __future__ import annotations

import math

import numpy as np

from quire.models.layers import RMSNorm
from quire.models.model_config import RopeConfig
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, as_numpy, as_tensor, name_of, numpy_dtype


class RotaryEmbedding:
    """Computes the cosines and sines of a step's positions, once for all layers."""

    def __init__(self, config: RopeConfig) -> None:
        self.frequencies, self.scale = inverse_frequencies(config)  # float32 [dim / 2]

    def __call__(self, positions: Array, dtype: DType) -> tuple[Array, Array]:
        """Return cos and sin for `rotate_heads`, each [num_tokens, 1, dim]. The first half of sin is negated."""
        if not isinstance(positions, np.ndarray):
            return self._of_tensors(positions, dtype)
        # Sines of float64 are the same on every machine once rounded; numpy's of float32 are not.
        angles = (positions.astype(np.float32)[:, None] * self.frequencies).astype(np.float64)
        cos, sin = np.cos(angles) * self.scale, np.sin(angles) * self.scale
        return _spread(cos, cos, dtype), _spread(-sin, sin, dtype)

    def _of_tensors(self, positions: Array, dtype: DType) -> tuple[Array, Array]:
        if positions.device.type == "cpu":
            cos, sin = self(as_numpy(positions), numpy_dtype(name_of(dtype)))
            return as_tensor(cos), as_tensor(sin)
        from quire.ops.on_torch import rotation

        return rotation(positions, as_tensor(self.frequencies), self.scale, dtype)


def _spread(first: np.ndarray, second: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Join two halves, float64 [num_tokens, dim / 2], rounded once to float32: [num_tokens, 1, dim]."""
    return np.concatenate((first, second), axis=1, dtype=np.float32, casting="same_kind").astype(dtype)[:, None]


def rotate_heads(
    qkv: Array,
    rotation: tuple[Array, Array],
    num_query_heads: int,
    num_key_heads: int,
    norms: tuple[RMSNorm, RMSNorm] | None,
) -> tuple[Array, Array, Array]:
    """Split qkv, [num_tokens, heads, dim] and maybe overwritten, into q, k and v, each [num_tokens, its heads, dim];
    norm q and k if there are norms (of queries, of keys), and rotate them."""
    weights = (None, None, 0.0) if norms is None else (norms[0].weight, norms[1].weight, norms[0].eps)
    qkv = ops.rotate_heads(qkv, *rotation, num_query_heads, num_key_heads, *weights)
    end = num_query_heads + num_key_heads
    return qkv[:, :num_query_heads], qkv[:, num_query_heads:end], qkv[:, end:]


def inverse_frequencies(config: RopeConfig) -> tuple[np.ndarray, float]:
    """Return the radians per position of each pair of dimensions ([dim / 2], float32), and a factor on cos and sin.

    llama3: Meta's reference for Llama 3.1. It slows down the pairs that turn less than once in the original context.
    yarn: arXiv 2309.00071, section 3.2 (NTK by parts).
    """
    exponents = np.arange(0, config.dim, 2, dtype=np.float32) / np.float32(config.dim)
    inv_freq = np.float32(1.0) / (np.float64(config.theta) ** exponents).astype(np.float32)
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
        slow = ((ramp - low) / ((high - low) or 0.001)).clip(0, 1)
        return inv_freq / config["factor"] * slow + inv_freq * (1 - slow), config["attention_factor"]
    return inv_freq, 1.0


def _dimension_that_turns(config: RopeConfig, times: float) -> float:
    original = config["original_max_position_embeddings"]
    return config.dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(config.theta))
