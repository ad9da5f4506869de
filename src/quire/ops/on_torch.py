"""The functions of `functions.py` for tensors, in plain torch: on a GPU, and as the reference."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(y: Tensor, weight: Tensor, eps: float, x: Tensor | None = None) -> Tensor:
    if x is not None:
        y.add_(x)
    return F.rms_norm(y, weight.shape, weight, eps)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def multiply(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def activate(x: Tensor, name: str) -> Tensor:
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    activation: Tensor = getattr(F, name)(x)
    return activation


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight, bias)


def rotate_heads(
    qkv: Tensor,
    cosines: Tensor,
    sines: Tensor,
    num_query_heads: int,
    num_key_heads: int,
    query_weight: Tensor | None,
    key_weight: Tensor | None,
    eps: float,
) -> Tensor:
    qk, v = qkv[:, : num_query_heads + num_key_heads], qkv[:, num_query_heads + num_key_heads :]
    if query_weight is not None and key_weight is not None:
        q, k = qk[:, :num_query_heads], qk[:, num_query_heads:]
        qk = torch.cat((rms_norm(q, query_weight, eps), rms_norm(k, key_weight, eps)), dim=1)
    rotated = torch.addcmul(qk * cosines, qk.roll(qk.shape[-1] // 2, dims=-1), sines)
    return torch.cat((rotated, v), dim=1)


def rotation(positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute cos and sin as `models.rotary.RotaryEmbedding` does, on the device of `positions`."""
    angles = (positions[:, None, None].float() * frequencies.to(positions.device)).double()
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.cat((cos, cos), -1).float().to(dtype), torch.cat((-sin, sin), -1).float().to(dtype)
