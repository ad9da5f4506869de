"""Weights of 8 or 4 bits without our kernels: `quantized_weight.py`'s numbers up to rounding, by torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quire.models.linear.interface import Activation

_GROUP = 64
_ROWS_AT_ONCE = 1024  # dequantized at once


class TorchQuantizedWeight:
    """See `PackedWeight`: the same numbers up to rounding, without kernels."""

    def __init__(self, weight: Tensor, bits: int) -> None:
        self.bits = bits
        self.out_features, self.in_features = weight.shape
        pieces = [(_to_bytes if bits == 8 else _to_groups)(rows.float()) for rows in weight.split(_ROWS_AT_ONCE)]
        self._integers, self._scales, self._lows = (torch.cat(part) for part in zip(*pieces, strict=True))
        self.num_bytes = sum(each.nbytes for each in (self._integers, self._scales, self._lows))

    def product(self, x: Tensor, bias: Tensor | None, activation: Activation = "none") -> Tensor:
        x_integers, x_scales = _quantize_rows(x.float())
        parts = []
        for start in range(0, self.out_features, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            parts.append(x_integers @ self._floats(rows).t())
        y = torch.cat(parts, dim=1) * x_scales if parts else x.new_empty(len(x), 0)
        if bias is not None:
            y = y + bias.float()
        return (F.silu(y) if activation == "silu" else y).to(x.dtype)

    def gated_product(self, x: Tensor, bias: Tensor | None, up: TorchQuantizedWeight, up_bias: Tensor | None) -> Tensor:
        return self.product(x, bias, "silu") * up.product(x, up_bias)

    def _floats(self, rows: slice) -> Tensor:
        integers, scales, lows = self._integers[rows], self._scales[rows].float(), self._lows[rows].float()
        if self.bits == 8:
            return integers * scales
        nibbles = torch.stack((integers & 15, integers >> 4), dim=-1).flatten(2)  # [rows, groups, 64]
        return (nibbles * scales + lows).flatten(1)[:, : self.in_features]


def _quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows so that the largest value becomes 127. Rows with NaN stay NaN."""
    largest = x.abs().amax(dim=1, keepdim=True) if x.shape[1] else x.new_zeros(len(x), 1)
    is_zero = largest <= 1e-30
    factors = torch.where(is_zero, 0.0, torch.full_like(largest, 127.0) / largest)
    return (x * factors).round(), torch.where(is_zero, 0.0, largest / 127.0)


def _to_bytes(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    integers, scales = _quantize_rows(weight)
    return integers.to(torch.int8), scales, scales.new_empty(len(scales), 0)


def _to_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `quantize_group` in csrc/quantized_linear.cpp: integers [rows, groups, 32], two per byte; scales and lows."""
    num_groups = -(-weight.shape[1] // _GROUP)
    padding = weight[:, -1:].expand(-1, num_groups * _GROUP - weight.shape[1])
    groups = torch.cat((weight, padding), dim=1).view(len(weight), num_groups, _GROUP)
    lowest, highest = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale, low = torch.zeros_like(lowest), lowest.bfloat16().float()
    integers, least = _place(groups, scale, low)
    for cut in range(8):
        out = 0.025 * cut * (highest - lowest)
        tried, _ = _place(groups, (highest - lowest - 2 * out) / 15, lowest + out)
        for _ in range(2):
            tried_scale, tried_low = _fit(groups, tried)
            tried, error = _place(groups, tried_scale, tried_low)
            is_better = error < least
            least = torch.where(is_better, error, least)
            scale, low = torch.where(is_better, tried_scale, scale), torch.where(is_better, tried_low, low)
            integers = torch.where(is_better, tried, integers)
    nibbles = integers.to(torch.uint8).view(len(weight), num_groups, _GROUP // 2, 2)
    return nibbles[..., 0] | nibbles[..., 1] << 4, scale.bfloat16(), low.bfloat16()


def _place(groups: Tensor, scale: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """Round weights to integers. Returns each group's squared error as well."""
    factor = torch.where(scale > 0, 1 / scale, 0.0)
    integers = ((groups - low) * factor).clamp(0, 15).round()
    return integers, (groups - (integers * scale + low)).square().sum(-1, keepdim=True)


def _fit(groups: Tensor, integers: Tensor) -> tuple[Tensor, Tensor]:
    """Fit scales and lows to these integers by least squares."""
    sum_x, sum_y = integers.sum(-1, keepdim=True), groups.sum(-1, keepdim=True)
    sum_xx, sum_xy = integers.square().sum(-1, keepdim=True), (integers * groups).sum(-1, keepdim=True)
    spread = _GROUP * sum_xx - sum_x.square()
    scale = torch.where(spread > 0, (_GROUP * sum_xy - sum_x * sum_y) / spread, 0.0).bfloat16().float()
    return scale, ((sum_y - scale * sum_x) / _GROUP).bfloat16().float()
