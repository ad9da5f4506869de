"""Weights of 8 or 4 bits, with activations quantized to 8 bits row by row.

- int8: one scale per output feature.
- int4: a scale and a lowest weight, both bfloat16, per 64 weights of an output feature: 4.5 bits per weight.

Products are exact integers, so a row's bits do not depend on other rows.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import layout
from quire.models.linear.interface import Activation, PackedWeight
from quire.ops.arrays import empty
from quire.system.threads import num_threads

logger = logging.getLogger("quire")

BITS = {"int8": 8, "int4": 4}
#: Names of the arithmetic in the KV blocks' namespace.
RECIPES = {"none": "none", "int8": "int8/row/1", "int4": "int4/64/1"}
#: The head's, with any other quantization.
HEAD_QUANTIZATION = "int8"
#: Dtypes of models with quantized layers.
DTYPES = (torch.float32, torch.bfloat16)

_PANEL, _GROUP = 32, 64
_MAX_DEPTH = 2**17  # longer sums may exceed 32 bits
_FORMS = {"none": 0, "silu": 1}  # QuireForm
_GATED = 2
_ROWS_AT_ONCE = 1024  # dequantized at once by torch


class _Weight(ctypes.Structure):
    """`QuireQuantizedWeight` in csrc/quantized_linear.h."""

    _fields_ = layout("pointer packed scales", "int64 depth columns bits")


class _QuantizedLinear(ctypes.Structure):
    """`QuireQuantizedLinear`."""

    _fields_ = layout(
        "pointer weight bias up up_bias x", "int64 x_stride num_rows", "pointer out", "int32 form num_threads"
    )


class _Quantize(ctypes.Structure):
    """`QuireQuantize`."""

    _fields_ = layout("pointer weight", "int64 stride depth columns", "pointer packed scales", "int32 bits num_threads")


def quantize_weight(weight: Tensor, quantization: str, library: ctypes.CDLL | None = None) -> PackedWeight:
    """Quantize a weight, [out_features, in_features], to int8 or int4, by `library`, `load_kernels` or torch. Raises
    ValueError for other dtypes, devices or sizes."""
    if weight.device.type != "cpu" or weight.dtype not in DTYPES or weight.shape[1] > _MAX_DEPTH:
        raise ValueError(
            f"a weight of {tuple(weight.shape)} in {weight.dtype} on {weight.device} cannot be quantized; supported: "
            f"float32 or bfloat16 in main memory, and up to {_MAX_DEPTH} inputs"
        )
    library = library or load_kernels().functions
    if library is None:
        _warn_of_torch()
        return TorchQuantizedWeight(weight.detach(), BITS[quantization])
    return QuantizedWeight(weight.detach(), BITS[quantization], library)


def quantized_bytes(out_features: int, in_features: int, quantization: str) -> int:
    """Return the memory of a quantized weight."""
    columns = -(-out_features // _PANEL) * _PANEL
    depth = -(-in_features // _GROUP) * _GROUP
    bits = BITS[quantization]
    return columns * depth + 4 * columns if bits == 8 else columns * depth // 2 + columns * (depth // _GROUP) * 4


@functools.cache
def _warn_of_torch() -> None:
    logger.warning("quantized weights without compiled kernels (%s) are correct but slow", load_kernels().reason)


class QuantizedWeight:
    """See `PackedWeight`: for csrc/quantized_linear.cpp. `bits` is 8 or 4. All levels share one layout."""

    def __init__(self, weight: Tensor, bits: int, library: ctypes.CDLL) -> None:
        self.bits = bits
        self.out_features, self.in_features = weight.shape
        self._library = library
        weight = weight if weight.stride(1) == 1 else weight.contiguous()
        num_columns = -(-self.out_features // _PANEL) * _PANEL
        library.quire_quantized_bytes.restype = ctypes.c_int64
        sizes = (ctypes.c_int64(self.out_features), ctypes.c_int64(self.in_features), ctypes.c_int32(bits))
        self._packed = empty((library.quire_quantized_bytes(*sizes),), torch.uint8)
        self._scales = torch.empty(num_columns if bits == 8 else 0, dtype=torch.float32, device="cpu")
        self.num_bytes = self._packed.nbytes + self._scales.nbytes
        call = _Quantize(
            weight=weight.data_ptr(),
            stride=weight.stride(0),
            depth=self.in_features,
            columns=self.out_features,
            packed=self._packed.data_ptr(),
            scales=self._scales.data_ptr(),
            bits=bits,
            num_threads=num_threads(),
        )
        getattr(library, f"quire_quantize_{_name(weight.dtype)}")(ctypes.byref(call))
        self._weight = _Weight(
            packed=self._packed.data_ptr(),
            scales=self._scales.data_ptr(),
            depth=self.in_features,
            columns=self.out_features,
            bits=bits,
        )
        self.address = ctypes.addressof(self._weight)  #: in kernel calls
        self._functions = {dtype: _bind(library, dtype) for dtype in DTYPES}

    def product(self, x: Tensor, bias: Tensor | None, activation: Activation = "none") -> Tensor:
        return self._multiply(x, bias, None, None, _FORMS[activation])

    def gated_product(self, x: Tensor, bias: Tensor | None, up: QuantizedWeight, up_bias: Tensor | None) -> Tensor:
        """Compute silu(x W^T + b) * (x U^T + c) in one pass over x; `up` has the same shape and bits."""
        return self._multiply(x, bias, up.address, up_bias, _GATED)

    def _multiply(self, x: Tensor, bias: Tensor | None, up: int | None, up_bias: Tensor | None, form: int) -> Tensor:
        num_rows = len(x)
        out = new_output((num_rows, self.out_features), x.dtype)
        if not num_rows:
            return out
        x = x if x.stride(1) == 1 else x.contiguous()
        call = _QuantizedLinear(
            self.address,
            None if bias is None else bias.data_ptr(),
            up,
            None if up_bias is None else up_bias.data_ptr(),
            x.data_ptr(),
            x.stride(0),
            num_rows,
            out.data_ptr(),
            form,
            num_threads(),
        )
        call_kernel(self._functions[x.dtype], call)
        return out


@functools.cache
def _bind(library: ctypes.CDLL, dtype: torch.dtype) -> Callable[..., None]:
    function = getattr(library, f"quire_quantized_linear_{_name(dtype)}")
    function.restype = None
    return cast(Callable[..., None], function)


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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
