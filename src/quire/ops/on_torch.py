"""The functions of `functions.py` for tensors, in plain torch: on a GPU, and as the reference."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(y: Tensor, weight: Tensor, eps: float, offset: float = 0.0, x: Tensor | None = None) -> Tensor:
    if x is not None:
        y.add_(x)
    if offset:  # the sum would be rounded in the weight's dtype
        return F.rms_norm(y.float(), weight.shape, weight.float() + offset, eps).to(y.dtype)
    return F.rms_norm(y, weight.shape, weight, eps)


def norm_heads(x: Tensor, start: int, num_heads: int, eps: float) -> Tensor:
    return F.rms_norm(x[:, start : start + num_heads], x.shape[-1:], eps=eps)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def multiply(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def scale(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


def cap(x: Tensor, most: float) -> Tensor:
    return most * torch.tanh(x / most) if most else x


def gate(x: Tensor) -> Tensor:
    left, up = x.chunk(2, dim=-1)
    return F.silu(left) * up


def gated_product(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def gate_heads(x: Tensor, gates: Tensor) -> Tensor:
    return x * gates.sigmoid()


def activate(x: Tensor, name: str) -> Tensor:
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    activation: Tensor = getattr(F, name)(x)
    return activation


def to_float32(x: Tensor) -> Tensor:
    return x.float()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight, bias)


def rotate_heads(
    qkv: Tensor,
    cosines: Tensor | None,
    sines: Tensor | None,
    query_scale: Tensor | None,
    num_query_heads: int,
    num_key_heads: int,
    query_weight: Tensor | None,
    key_weight: Tensor | None,
    eps: float,
    offset: float,
    is_interleaved: bool,
    query_step: int = 1,
) -> Tensor:
    queries = num_query_heads * query_step
    q, k, v = qkv.split_with_sizes([queries, num_key_heads, qkv.shape[1] - queries - num_key_heads], 1)
    q, between = q[:, ::query_step], q.unflatten(1, (num_query_heads, query_step))[:, :, 1:]
    if query_weight is not None and key_weight is not None:
        q, k = (_norm(*pair, eps, offset) for pair in ((q, query_weight), (k, key_weight)))
    qk = torch.cat((q, k), dim=1)
    if cosines is not None and sines is not None:
        dim = cosines.shape[-1]
        first = qk[..., :dim]
        if is_interleaved:
            first = torch.cat((first[..., 0::2], first[..., 1::2]), -1)
        rotated = torch.addcmul(first * cosines, first.roll(dim // 2, dims=-1), sines)
        if is_interleaved:
            rotated = torch.stack((rotated[..., : dim // 2], rotated[..., dim // 2 :]), -1).flatten(-2)
        qk = torch.cat((rotated, qk[..., dim:]), -1)
    if query_scale is not None:
        qk = torch.cat((qk[:, :num_query_heads] * query_scale[:, None, None], qk[:, num_query_heads:]), 1)
    q, k = qk[:, :num_query_heads], qk[:, num_query_heads:]
    return torch.cat((torch.cat((q[:, :, None], between), 2).flatten(1, 2), k, v), dim=1)


def norm_latents(
    queries: Tensor, keys: Tensor, weight: Tensor, cosines: Tensor, sines: Tensor, eps: float, is_interleaved: bool
) -> Tensor:
    size = len(weight)
    keys[:, :size] = rms_norm(keys[:, :size], weight, eps)
    rotated = cosines.shape[-1]
    for x in (queries, keys[:, None]):
        last = x[..., x.shape[-1] - rotated :]
        last.copy_(rotate_heads(last, cosines, sines, None, x.shape[1], 0, None, None, 0.0, 0.0, is_interleaved))
    return queries


def _norm(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    return rms_norm(x.reshape(len(x), -1, len(weight)), weight, eps, offset).reshape(x.shape)


def rotation(positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute cos and sin as `models.rotary.RotaryEmbedding` does, on the device of `positions`."""
    angles = (positions[:, None, None].float() * frequencies).double()
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.cat((cos, cos), -1).float().to(dtype), torch.cat((-sin, sin), -1).float().to(dtype)
