"""Weights for Triton kernels, encoded on their device: of floats in 8, 4 or 12 bits, and of blocks that files hold."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quire.ops.encoded_weight import GROUP, EncodedWeight, Form

FORMS = {4: Form(4, GROUP, has_lows=True), 8: Form(8), 12: Form(12, GROUP)}  #: of floats, by bits
_AT_ONCE = 2**22  # weights encoded at once
_MOST_EXCEPTIONS = 1 / 128  # of a weight of 12 bits
_HIGHS = 7  # values of an exponent's upper bits in a row
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
#: Of blocks, by their type. INT4, INT8 and FP8 have groups of their own.
BLOCK_FORMS = {
    "Q4_0": Form(4, 32, 8), "Q4_1": Form(4, 32, 0, True), "Q5_0": Form(8, 32), "Q5_1": Form(8, 32, 0, True),
    "Q8_0": Form(8, 32), "Q4_K": Form(4, 32, 0, True, 8), "Q5_K": Form(8, 32, 0, True, 8),
    "Q6_K": Form(8, 16, 0, False, 16), "IQ4_NL": Form(4, 32), "IQ4_XS": Form(4, 32, 0, False, 8),
    "MXFP4": Form(4, 32, is_float=True),
}  # fmt: skip


def round_weight(weight: Tensor, bits: int) -> EncodedWeight:
    """Round a weight to 8 or 4 bits, as csrc/quantized_linear.cpp does."""
    form, (width, depth) = FORMS[bits], weight.shape
    padded = -(-depth // form.unit) * form.unit
    numbers = torch.empty((width, padded * bits // 8), dtype=torch.int8, device=weight.device)
    shape, dtype = ((width,), torch.float32) if bits == 8 else ((padded // GROUP, 2, width), torch.bfloat16)
    scales = torch.empty(shape, dtype=dtype, device=weight.device)
    for rows in _parts(width, depth):
        some = F.pad(weight[rows].float()[None], (0, padded - depth), mode="replicate")[0]
        numbers[rows], scales[..., rows] = (_round_rows if bits == 8 else _round_groups)(some)
    return EncodedWeight(form, width, depth, numbers, scales)


def compact_weight(weight: Tensor) -> EncodedWeight | None:
    """Encode a weight of bfloat16 in 12 bits without loss. None if it has many unusual exponents."""
    form, (width, depth), device = FORMS[12], weight.shape, weight.device
    padded = -(-depth // form.unit) * form.unit
    numbers = torch.empty((width, padded // 2), dtype=torch.int8, device=device)
    lower = torch.empty((width, padded), dtype=torch.int8, device=device)
    base = torch.empty(width, dtype=torch.int16, device=device)
    counts = torch.empty(width, dtype=torch.int32, device=device)
    places, values = [], []
    for rows in _parts(width, depth):
        words = F.pad(weight[rows].contiguous().view(torch.int16), (0, padded - depth))
        highs = words >> 8 & 127
        base[rows] = start = _before_most(highs)
        codes = highs - start[:, None]
        codes = torch.where((codes > 0) & (codes <= _HIGHS), codes, 0)
        is_other = (codes == 0) & (words & 0x7FFF != 0)
        counts[rows] = is_other.sum(1, dtype=torch.int32)
        places.append(is_other.nonzero()[:, 1].int())
        values.append(words[is_other].view(torch.bfloat16))
        numbers[rows], lower[rows] = _pair(codes | words >> 12 & 8, GROUP), words & 255
    starts = F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    if starts[-1] > _MOST_EXCEPTIONS * weight.numel():
        return None
    return EncodedWeight(form, width, depth, numbers, base, None, lower, starts, torch.cat(places), torch.cat(values))


def open_blocks(kind: str, rows: Tensor, depth: int, group: int) -> EncodedWeight:
    """Encode rows of blocks, uint8 [width, row_bytes]: see `BlockRows`."""
    width, device = len(rows), rows.device
    form = BLOCK_FORMS.get(kind) or _form_of_integers(kind, rows, group)
    padded = -(-depth // form.unit) * form.unit
    numbers = torch.zeros((width, padded * form.bits // 8), dtype=torch.int8, device=device)
    found: list[list[Tensor]] = [[], []]
    for some in _parts(width, depth):
        integers, *grids = _open(kind, rows[some], group, form)
        integers = F.pad(integers, (0, padded - integers.shape[1]))
        numbers[some] = _pair(integers, form.group) if form.bits == 4 else integers
        for parts, grid in zip(found, grids, strict=False):
            parts.append(grid.permute(1, 2, 0))
    num_groups = padded // form.group
    scales, factors = (torch.cat(parts, 2) if parts else None for parts in found)
    assert scales is not None
    scales = F.pad(scales, (0, 0, 0, 0, 0, -(-num_groups // form.spread) - len(scales)))
    if factors is not None:
        factors = F.pad(factors, (0, 0, 0, 0, 0, num_groups - len(factors)))
    table = torch.tensor(_IQ4, dtype=torch.int8, device=device) if kind.startswith("IQ4") else None
    return EncodedWeight(form, width, depth, numbers, scales, factors, table)


def _parts(width: int, depth: int) -> list[slice]:
    count = -(-_AT_ONCE // depth)
    return [slice(start, min(start + count, width)) for start in range(0, width, count)]


def _pair(integers: Tensor, group: int) -> Tensor:
    """Put the integers of neighbouring groups in the halves of bytes."""
    pairs = integers.to(torch.int8).unflatten(1, (-1, 2, group))
    return (pairs[:, :, 0] | pairs[:, :, 1] << 4).flatten(1)


def _before_most(highs: Tensor) -> Tensor:
    """Return the number before those `_HIGHS` consecutive ones that most of a row's are; zeros are not counted."""
    counts = torch.zeros((len(highs), 128), dtype=torch.int32, device=highs.device)
    counts.scatter_add_(1, highs.long(), torch.ones_like(highs, dtype=torch.int32))
    return counts[:, 1:].unfold(1, _HIGHS, 1).sum(-1).argmax(1).to(torch.int16)


# -- blocks ------------------------------------------------------------------------------------------------------------


def _form_of_integers(kind: str, rows: Tensor, group: int) -> Form:
    """Return the form of INT4, INT8 or FP8: groups are halved until kernels take them."""
    size = 1 << min(7, (group & -group).bit_length() - 1)
    if kind != "INT4":
        return Form(8, size, is_float=kind == "FP8")
    zeros = rows.unflatten(1, (-1, 5 + group))[..., 4]
    return Form(4, size, 8) if bool((zeros == 8).all()) else Form(4, size, 0, True)


def _open(kind: str, rows: Tensor, group: int, form: Form) -> tuple[Tensor, ...]:
    """Return integers [n, depth], scales [n, groups / spread, kinds], and maybe factors [n, groups, kinds]."""
    if kind not in BLOCK_FORMS:
        return _open_integers(rows.unflatten(1, (-1, 5 + group)), group, form)
    if kind == "Q6_K":
        return _open_q6(rows.unflatten(1, (-1, 210)))
    super_size, kinds = form.group * form.spread, 2 if form.has_lows else 1
    bits = 5 if kind.startswith("Q5") else form.bits
    num_factors = {"Q4_K": 12, "Q5_K": 12, "IQ4_XS": 6}.get(kind, 0)
    num_scales = 1 if kind == "MXFP4" else 2 * kinds
    fifths, rest = (super_size // 8 if bits == 5 else 0), super_size * (bits if bits == 8 else 4) // 8
    blocks = rows.unflatten(1, (-1, num_scales + num_factors + fifths + rest))
    scales, packed, extra, data = blocks.split((num_scales, num_factors, fifths, rest), -1)
    if kind == "MXFP4":
        scales = torch.where(scales == 0, 0x400000, scales.int() << 23).view(torch.float32).mul(2**14).bfloat16()
    else:
        scales = scales.contiguous().view(torch.float16)
    if bits == 8:
        return data.flatten(1).view(torch.int8), scales
    at_once = 32 if num_factors == 12 else 16  # bytes, whose lower halves come first
    halves = data.unflatten(-1, (-1, at_once))
    integers = torch.cat((halves & 15, halves >> 4), -1).flatten(2)
    if fifths:
        integers = integers | _spread_bits(extra, by_bit=num_factors == 12) << 4
    if kind == "Q5_0":
        integers = integers.to(torch.int8) - 16
    integers = integers.flatten(1).to(torch.int8)
    if not num_factors:
        return integers, scales
    factors = _open_six(packed) if num_factors == 12 else _open_iq4(packed)
    if kinds == 2:  # a minimum is subtracted
        scales = scales * torch.tensor((1, -1), dtype=torch.float16, device=scales.device)
    return integers, scales, factors.flatten(1, 2)


def _spread_bits(fifths: Tensor, *, by_bit: bool) -> Tensor:
    """Return a bit per input: of byte i / 8, or of byte i % 32 with bit i / 32."""
    shifts = torch.arange(8, dtype=torch.uint8, device=fifths.device)
    if by_bit:
        return (fifths[..., None, :] >> shifts[:, None] & 1).flatten(2)
    return (fifths[..., None] >> shifts & 1).flatten(2)


def _open_six(packed: Tensor) -> Tensor:
    """Return factors of 6 bits of scales and minima, int8 [n, blocks, 8, 2]."""
    first, second, third = packed.unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, (third & 15) | (first >> 6 << 4)), -1)
    minima = torch.cat((second & 63, third >> 4 | (second >> 6 << 4)), -1)
    return torch.stack((scales, minima), -1).to(torch.int8)


def _open_iq4(packed: Tensor) -> Tensor:
    """Return signed factors of 6 bits, int8 [n, blocks, 8, 1]."""
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=packed.device)
    upper = (packed[..., :2, None] >> shifts & 3).flatten(2)
    lower = torch.stack((packed[..., 2:] & 15, packed[..., 2:] >> 4), -1).flatten(2)
    return ((lower | upper << 4).to(torch.int8) - 32)[..., None]


def _open_q6(blocks: Tensor) -> tuple[Tensor, ...]:
    low, high, factors, scales = blocks.split((128, 64, 16, 2), -1)
    low, high = low.unflatten(-1, (2, 1, 64)), high.unflatten(-1, (2, 1, 32))
    low = torch.cat((low & 15, low >> 4), -2).flatten(-2).unflatten(-1, (4, 32))
    high = torch.cat([high >> shift & 3 for shift in (0, 2, 4, 6)], -2)
    integers = (low | high << 4).flatten(1).to(torch.int8) - 32
    return integers, scales.contiguous().view(torch.float16), factors.view(torch.int8).flatten(1)[..., None]


def _open_integers(blocks: Tensor, group: int, form: Form) -> tuple[Tensor, ...]:
    scales, zeros, integers = blocks.split((4, 1, group), -1)
    repeated = group // form.group
    scales = scales.contiguous().view(torch.float32).repeat_interleave(repeated, 1)
    if form.bits == 8:
        integers, scales = (integers, scales * 256) if form.is_float else (integers ^ 128, scales)
        return integers.flatten(1).view(torch.int8), scales
    integers = integers.flatten(1).to(torch.int8)
    if not form.has_lows:
        return integers, scales
    zeros = zeros.to(torch.int8).repeat_interleave(repeated, 1)
    return integers, torch.cat((scales, -scales), -1), torch.cat((torch.ones_like(zeros), zeros), -1)


# -- rounding ----------------------------------------------------------------------------------------------------------


def _round_rows(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows, float32, so that the largest weight of each is 127. Returns bytes, and scales [rows]."""
    highest = weights.abs().amax(1)
    return (weights * (127 / highest.clamp_min(1e-30))[:, None]).round_().to(torch.int8), highest / 127


def _round_groups(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize groups of 64 weights of rows, float32. Returns bytes, and scales and lows [groups, 2, rows]."""
    weights = weights.unflatten(1, (-1, GROUP))
    scale, low = _best_grids(weights)
    integers = _place(weights, scale, low).flatten(1)
    return _pair(integers, GROUP), torch.cat((scale, low), -1).permute(1, 2, 0)


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
