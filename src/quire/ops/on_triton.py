"""Functions of `functions.py` as one Triton kernel each, for tensors on a GPU. `on_torch` has the others."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from quire.kernels.triton import elementwise as kernels

_TILE = 4096  # values
_HEADS = 16


def rms_norm(y: Tensor, weight: Tensor, eps: float, offset: float = 0.0, x: Tensor | None = None) -> Tensor:
    size = y.shape[-1]
    rows = y.reshape(-1, size) if y.stride(-1) == 1 else y.contiguous().view(-1, size)
    assert x is None or rows.data_ptr() == y.data_ptr()
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    columns = triton.next_power_of_2(size)
    tile = max(1, _TILE // columns)
    if len(rows):
        kernels.rms_norm[(triton.cdiv(len(rows), tile),)](
            rows, None if x is None else x.contiguous(), weight, out, len(rows), rows.stride(0), SIZE=size, EPS=eps,
            OFFSET=offset, ROWS=tile, COLUMNS=columns, num_warps=8 if columns > _TILE else 4,
        )  # fmt: skip
    return out


def gate(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return gated_product(left, right)


def gated_product(x: Tensor, y: Tensor) -> Tensor:
    size = x.shape[-1]
    x, y = (each if each.stride(-1) == 1 else each.contiguous() for each in (x, y))
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns = min(1024, triton.next_power_of_2(size))
    tile = 1024 // columns
    if len(x):
        kernels.gate[triton.cdiv(len(x), tile), triton.cdiv(size, columns)](
            x, y, out, len(x), x.stride(0), y.stride(0), SIZE=size, ROWS=tile, COLUMNS=columns
        )
    return out


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
    qkv = qkv.contiguous()
    num_tokens, num_heads, dim = qkv.shape
    if query_weight is not None and key_weight is not None and len(query_weight) > dim:  # over all heads of a token
        assert query_step == 1
        parts = qkv[:, :num_query_heads], qkv[:, num_query_heads : num_query_heads + num_key_heads]
        for part, weight in zip(parts, (query_weight, key_weight), strict=True):
            part.copy_(rms_norm(part.reshape(num_tokens, -1), weight, eps, offset).view(part.shape))
        query_weight = key_weight = None
    half = 0 if cosines is None else cosines.shape[-1] // 2
    is_whole = 2 * half == dim or (query_weight is None and query_scale is None)
    if num_tokens:
        kernels.rotate_heads[(triton.cdiv(num_tokens * (num_query_heads + num_key_heads), _HEADS),)](
            qkv, *(None if each is None else each.contiguous() for each in (cosines, sines)), query_scale, query_weight,
            key_weight, num_tokens, NUM_QUERIES=num_query_heads, NUM_KEYS=num_key_heads, STEP=query_step,
            NUM_HEADS=num_heads, DIM=dim, HALF=half, EPS=eps, OFFSET=offset, IS_INTERLEAVED=is_interleaved, ROWS=_HEADS,
            PAIRS=triton.next_power_of_2(max(1, half)), REST=0 if is_whole else triton.next_power_of_2(dim - 2 * half),
        )  # fmt: skip
    return qkv
