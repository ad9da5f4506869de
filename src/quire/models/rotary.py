"""Rotary position embeddings: cosines and sines of a step's positions, and the rotation of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quire.kernels.elementwise import Elementwise, threads_for
from quire.models.layers import RMSNorm, is_plain
from quire.models.model_config import RopeConfig
from quire.system.threads import num_threads


class RotaryEmbedding:
    """Computes the cosines and sines of a step's positions, once for all layers: a table of all positions would be
    hardly faster (15 and 21 µs instead of 16 and 29 for 1 and 32 tokens)."""

    def __init__(self, config: RopeConfig) -> None:
        inv_freq, self.scale = inverse_frequencies(config)
        self.frequencies = torch.cat((-inv_freq, inv_freq))  # [dim], float32

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin for `rotate`, each [num_tokens, 1, dim]. The first half of sin is negated."""
        if self.frequencies.device != positions.device:
            self.frequencies = self.frequencies.to(positions.device)
        angles = positions[:, None, None].float() * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        if self.scale != 1.0:
            cos, sin = cos * self.scale, sin * self.scale
        return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the pairs (i, i + dim / 2) of each head by the token's angles. x: [num_tokens, heads, dim]."""
    cos, sin = rotation
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def rotate_heads(
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    num_query_heads: int,
    num_key_heads: int,
    norms: tuple[RMSNorm, RMSNorm] | None,
    kernels: Elementwise | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Split qkv, [num_tokens, heads, dim] and maybe overwritten, into q, k and v, each [num_tokens, its heads, dim];
    norm q and k if there are norms (of queries, of keys), and rotate them."""
    cos, sin = rotation
    sizes = [num_query_heads, num_key_heads, num_key_heads]
    if kernels is None or not (is_plain(qkv, cos) and qkv.is_contiguous()):
        q, k, v = torch.split_with_sizes(qkv, sizes, 1)
        if norms is not None:
            qk = torch.cat((norms[0](q), norms[1](k)), dim=1)
        else:
            qk = qkv[:, : num_query_heads + num_key_heads]
        q, k = torch.split_with_sizes(rotate(qk, rotation), sizes[:2], 1)
        return q, k, v
    num_tokens, num_heads, dim = qkv.shape
    kernels.rotate(
        qkv.data_ptr(),
        num_tokens,
        num_heads * dim,
        num_query_heads,
        num_key_heads,
        dim,
        cos.data_ptr(),
        sin.data_ptr(),
        None if norms is None else norms[0].weight.data_ptr(),
        None if norms is None else norms[1].weight.data_ptr(),
        0.0 if norms is None else norms[0].eps,
        threads_for(num_tokens * num_heads * dim, num_threads()),
    )
    q, k, v = torch.split_with_sizes(qkv, sizes, 1)  # half the time of three slices
    return q, k, v


def inverse_frequencies(config: RopeConfig) -> tuple[Tensor, float]:
    """Return the radians per position of each pair of dimensions ([dim / 2], float32), and a factor on cos and sin.

    llama3: Meta's reference for Llama 3.1. It slows down the pairs that turn less than once in the original context.
    yarn: arXiv 2309.00071, section 3.2 (NTK by parts).
    """
    exponents = torch.arange(0, config.dim, 2, dtype=torch.float32, device="cpu") / config.dim
    inv_freq = 1.0 / (config.theta**exponents)
    if config.rope_type == "linear":
        return inv_freq / config["factor"], 1.0
    if config.rope_type == "llama3":
        original, low, high = (
            config[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        turns = original * inv_freq / (2 * math.pi)  # in the original context
        keep = ((turns - low) / (high - low)).clamp(0, 1)  # 1: fast, as it was; 0: slow, divided by factor
        return inv_freq * keep + inv_freq / config["factor"] * (1 - keep), 1.0
    if config.rope_type == "yarn":
        low, high = (_dimension_that_turns(config, config[k]) for k in ("beta_fast", "beta_slow"))
        if config["truncate"]:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, config.dim - 1)
        ramp = torch.arange(config.dim // 2, dtype=torch.float32, device="cpu")
        slow = ((ramp - low) / ((high - low) or 0.001)).clamp(0, 1)
        return inv_freq / config["factor"] * slow + inv_freq * (1 - slow), config["attention_factor"]
    return inv_freq, 1.0


def _dimension_that_turns(config: RopeConfig, times: float) -> float:
    original = config["original_max_position_embeddings"]
    return config.dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(config.theta))
