"""Layers with recurrent states by our Triton kernels (`kernels/triton/states.py`), on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton

from quire.attention.triton_states import TritonStates
from quire.kernels.triton import states as kernels
from quire.ops.on_triton import gated_product, rms_norm

_COLUMNS = 8  # of a matrix, that a warp keeps in registers


def short_conv(layer: Any, states: TritonStates, x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty((len(x), layer.channels.size))
    for group in states.groups:
        _convolve(layer.conv, states, x.contiguous(), out, *group, is_gated=True)
    return out


def linear_attention(layer: Any, states: TritonStates, x: torch.Tensor, gates: torch.Tensor | None) -> torch.Tensor:
    places, keys, values = layer.places(), layer.keys.size, layer.values.size
    is_delta, heads, groups = "b" in places, layer.value_heads.size, layer.num_key_heads

    def part(name: str) -> torch.Tensor:
        given = x if gates is None or name not in "ba" else gates
        (first, step, size), (stride, _) = places[name], given.stride()
        return given.as_strided((len(x), groups, size), (stride, step, 1), given.storage_offset() + first).flatten(1)

    x, gates = x.contiguous(), None if gates is None else gates.contiguous()
    order = "qkv" if is_delta else "vkq"  # of channels
    inputs, gate = (torch.cat([*map(part, names)], 1) for names in (order, "ab" if is_delta else "a"))
    offsets = (0, keys, 2 * keys) if is_delta else (values + keys, values, 0)
    mixed = torch.empty_like(inputs, dtype=torch.float32)
    y = mixed.new_zeros((len(x), values))  # also rows of padding
    for group in states.groups:
        _convolve(layer.conv1d, states, inputs, mixed, *group)
        kernels.recur[group[1], values // _COLUMNS](
            mixed, gate, layer.A_log, layer.dt_bias, getattr(layer, "D", None), y, states.memory, states.plan,
            states.at, group[0], states.start + 3 * mixed.shape[1], IS_DELTA=is_delta, CHANNELS=mixed.shape[1],
            GROUPS=layer.groups, KEY_DIM=layer.size.key_dim, VALUE_DIM=layer.size.value_dim, HEADS=heads,
            KEYS=triton.next_power_of_2(layer.size.key_dim), COLUMNS=_COLUMNS, num_warps=1,
            **dict(zip("QKV", offsets, strict=True)), **states.records,
        )  # fmt: skip
    norm, z = layer.norm, part("z")
    if is_delta:
        return gated_product(z, rms_norm(y.unflatten(1, (heads, -1)), norm.weight, norm.eps).flatten(1))
    y = gated_product(z, y)
    parts = zip(y.chunk(groups, 1), norm.weight.chunk(groups), strict=True)
    return y if layer.norms_all_ranks else torch.cat([rms_norm(*each, norm.eps) for each in parts], 1)


def _convolve(
    of: Any, states: TritonStates, x: torch.Tensor, out: torch.Tensor, first: int, count: int, *, is_gated: bool = False
) -> None:
    channels, _, taps = of.weight.shape
    kernels.convolve[count, triton.cdiv(channels, 64)](
        x, of.weight, of.bias, out, states.memory, states.plan, states.at, first, x.stride(0), states.start,
        CHANNELS=channels, TAPS=taps, GATED=is_gated, ROWS=16, COLUMNS=64, **states.records,
    )  # fmt: skip
