"""Weights of 8 or 4 bits on a GPU, for `kernels/triton/linear.py`. Activations keep their dtype."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from quire.kernels.triton import linear as kernels
from quire.ops.arrays import name_of
from quire.ops.triton_check import TOLERANCE

_BLOCK = 128  # rows are padded to whole blocks of inputs: a step of 8 bits, and two groups of 4 bits
_PROGRAMS = 512  # tiles of outputs times spans, if that leaves spans of `_SPAN` inputs
_SPAN = 1024
_FEW_ROWS = 64
_FEW_TILES = 96  # of more rows, which leave processors idle
_COLUMNS = 64
_AT_ONCE = 2**22  # weights quantized at once


class TritonWeight:
    """See `PackedWeight`. On a GPU, or in main memory for Triton's interpreter. `bits` is 8 or 4."""

    def __init__(self, weight: Tensor, bits: int) -> None:
        self.bits = bits
        self.out_features, self.in_features = width, depth = weight.shape
        num_blocks = -(-depth // _BLOCK)
        self._row_bytes = num_blocks * _BLOCK * bits // 8
        self._packed = torch.empty((width, self._row_bytes), dtype=torch.int8, device=weight.device)
        shape, dtype = ((width,), torch.float32) if bits == 8 else ((2 * num_blocks, 2, width), torch.bfloat16)
        self._scales = torch.empty(shape, dtype=dtype, device=weight.device)
        num_rows = -(-_AT_ONCE // depth)
        for start in range(0, width, num_rows):
            rows = slice(start, start + num_rows)
            some = F.pad(weight[rows].float()[None], (0, num_blocks * _BLOCK - depth), mode="replicate")[0]
            self._packed[rows], self._scales[..., rows] = (_round_rows if bits == 8 else _round_groups)(some)
        num_spans = max(1, min(-(-_PROGRAMS // -(-width // _COLUMNS)), depth // _SPAN))
        self._span = -(-num_blocks // num_spans) * _BLOCK * bits // 8
        self._num_spans = -(-self._row_bytes // self._span)
        self.num_bytes = self._packed.nbytes + self._scales.nbytes

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        num_rows, width = len(x), self.out_features
        out = torch.empty((num_rows, width), dtype=x.dtype, device=x.device)
        if not num_rows:
            return out
        x = x if x.stride(1) == 1 else x.contiguous()
        sizes = tile_sizes(num_rows, self.bits, x.dtype)
        tiles = (triton.cdiv(num_rows, sizes["ROWS"]), triton.cdiv(width, sizes["COLUMNS"]))
        sums = None
        is_cut = self._num_spans > 1 and (num_rows <= _FEW_ROWS or tiles[0] * tiles[1] <= _FEW_TILES)
        if is_cut:
            sums = torch.empty((self._num_spans, num_rows, width), dtype=torch.float32, device=x.device)
        finish = (self._scales, bias, out)
        kernels.multiply[*tiles, self._num_spans if is_cut else 1](
            x, self._packed, *finish, sums, num_rows, x.stride(0), self.in_features, width, self._row_bytes, self._span,
            self._num_spans, BITS=self.bits, **sizes, OPERANDS=_operands(x.dtype),
        )  # fmt: skip
        if is_cut:
            kernels.join_spans[triton.cdiv(num_rows, 16), triton.cdiv(width, 64)](
                sums, *finish, num_rows, width, self._num_spans, BITS=self.bits, ROWS=16, COLUMNS=64
            )
        return out


def tile_sizes(num_rows: int, bits: int, dtype: torch.dtype) -> dict[str, int]:
    """Return the kernel's tiles and warps. Any sizes sum in the same order."""
    if dtype.itemsize == 4:  # products of float32 take no tensor cores, but registers
        return {"ROWS": 16 if num_rows <= 16 else 32, "COLUMNS": _COLUMNS, "STEP": 64, "num_warps": 4}
    step = 128 if bits == 8 else 64
    if num_rows > _FEW_ROWS:
        return {"ROWS": 128, "COLUMNS": 128, "STEP": step // 2, "num_warps": 8}
    return {"ROWS": 16 if num_rows <= 16 else 64, "COLUMNS": _COLUMNS, "STEP": step, "num_warps": 4}


def _operands(dtype: torch.dtype) -> tl.dtype:
    name = name_of(dtype)
    if triton.knobs.runtime.interpret and name == "bfloat16":  # the interpreter cannot multiply it
        name = "float32"
    return getattr(tl, name)


@functools.cache
def check_products(bits: int, dtype: torch.dtype, device: torch.device) -> None:
    """Compare products with torch's, of weights that have these bits, before requests depend on them. ValueError if a
    kernel fails or differs. Kernels are compiled here, or read from Triton's cache."""
    generator = torch.Generator().manual_seed(0)
    highest = 2 ** min(bits, 7) - 1  # has a scale of one
    try:
        for depth in (200, 2 * _SPAN + 8):  # a span, and two
            weight = torch.randint(0, highest + 1, (48, depth), generator=generator)
            weight[:, ::32], weight[:, 1::32] = 0, highest
            packed = TritonWeight(weight.to(device, dtype), bits)
            x = torch.randn((_FEW_ROWS + 6, depth), generator=generator).to(device, dtype)
            expected = x.double() @ weight.to(device).double().T
            for num_rows in (1, 20, len(x)):
                found = packed.product(x[:num_rows], None).double()
                difference = float((found - expected[:num_rows]).abs().max() / expected.abs().max())
                if not difference <= TOLERANCE[name_of(dtype)]:
                    raise ValueError(f"it differs from torch by {difference:.2g} of its largest value")
    except Exception as error:
        what = f"the Triton kernel for weights of {bits} bits does not work here"
        raise ValueError(f"{what}: {error}; leave out the quantization") from error


# -- quantization, as csrc/quantized_linear.cpp does it ----------------------------------------------------------------


def _round_rows(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows, float32, so that the largest weight of each is 127. Returns bytes, and scales [rows]."""
    highest = weights.abs().amax(1)
    return (weights * (127 / highest.clamp_min(1e-30))[:, None]).round_().to(torch.int8), highest / 127


def _round_groups(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize groups of 64 weights of rows, float32. Returns bytes, and scales and lows [groups, 2, rows]."""
    weights = weights.unflatten(1, (-1, 2, _BLOCK // 2))
    scale, low = _best_grids(weights)
    integers = _place(weights, scale, low).to(torch.uint8)
    packed = integers[:, :, 0] | integers[:, :, 1] << 4
    return packed.flatten(1).view(torch.int8), torch.cat((scale, low), -1).flatten(1, 2).permute(1, 2, 0)


def _best_grids(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return scales and lows of groups, [..., 1]. Grids that clip more and more of both ends are fitted; the one with
    the least squared error is kept."""
    lowest, highest = weights.aminmax(dim=-1, keepdim=True)
    sums, scale, low = weights.sum(-1, keepdim=True), torch.zeros_like(lowest), lowest.bfloat16().float()
    least = (weights - low).square_().sum(-1, keepdim=True)
    for cut in range(8):
        clipped = 0.025 * cut * (highest - lowest)
        integers = _place(weights, (highest - lowest - 2 * clipped) / 15, lowest + clipped)
        for _ in range(2):
            fitted, start = _fit(weights, integers, sums)
            integers = _place(weights, fitted, start)
            error = torch.addcmul(start, integers, fitted).sub_(weights).square_().sum(-1, keepdim=True)
            is_better = error < least
            scale, low = torch.where(is_better, fitted, scale), torch.where(is_better, start, low)
            least = torch.minimum(least, error)
    return scale, low


def _place(weights: Tensor, scale: Tensor, low: Tensor) -> Tensor:
    factor = torch.where(scale > 0, 1 / scale, 0)
    return (weights - low).mul_(factor).clamp_(0, 15).round_()


def _fit(weights: Tensor, integers: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Fit grids to integers by least squares. Returns scales and lows, rounded to bfloat16."""
    size = weights.shape[-1]
    x, square, product = (each.sum(-1, keepdim=True) for each in (integers, integers * integers, integers * weights))
    spread = size * square - x * x
    scale = torch.where(spread > 0, (size * product - x * sums) / spread, 0).bfloat16().float()
    return scale, ((sums - scale * x) / size).bfloat16().float()
