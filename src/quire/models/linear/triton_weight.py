"""Weights on a GPU that Triton kernels decode. Activations keep their dtype."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from quire.kernels.triton import linear as kernels
from quire.models.linear.block_weight import BlockRows
from quire.models.linear.triton_encodings import compact_weight, open_blocks, round_weight
from quire.ops.arrays import as_tensor
from quire.ops.encoded_weight import EncodedWeight, Form, operands_of, plain_weight
from quire.ops.on_triton import gated_product
from quire.ops.triton_check import compare

_PROGRAMS = 512  # tiles of outputs times spans, if that leaves spans of `_SPAN` inputs
_SPAN = 1024
_FEW_ROWS = 64
_FUSED_ROWS = 16  # for more, two sums of a tile do not fit into registers
_FEW_TILES = 96  # of more rows, which leave processors idle
_COLUMNS = 64
_CHECKED_ROWS = 48  # of a weight
_CHECKED: set[Any] = set()  #: forms whose kernels work here


class TritonWeight:
    """See `PackedWeight`. On a GPU, or in main memory for Triton's interpreter."""

    def __init__(self, weight: EncodedWeight, dtype: torch.dtype, *, is_cut: bool = True) -> None:
        self.encoded, self.device, form = weight, weight.numbers.device, weight.form
        self.kind = (weight.width, weight.depth, *weight.kind)  #: weights of one kind share a launch
        per_byte = 1 if form.bits == 8 else 2
        num_units = weight.row_size * per_byte // form.unit
        num_spans = max(1, min(-(-_PROGRAMS // -(-weight.width // _COLUMNS)), weight.depth // _SPAN))
        self._span = -(-num_units // num_spans) * form.unit // per_byte
        self._num_spans = -(-weight.row_size // self._span)
        num_tiles = max(2 * triton.cdiv(weight.width, _COLUMNS), _FEW_TILES)
        self.is_cut = is_cut and self._num_spans > 1  #: whether few rows are computed in spans
        self._counts = torch.zeros(num_tiles, dtype=torch.int32, device=self.device) if self.is_cut else None
        self.num_bytes = weight.num_bytes
        self._dtype = dtype  #: of rows

    def rows(self, ids: Tensor) -> Tensor:
        """Return decoded rows of a weight with groups: int64 [n] -> [n, depth]. Ids are cut to existing ones."""
        weight, ids = self.encoded, ids.contiguous()
        out = torch.empty((len(ids), weight.depth), dtype=self._dtype, device=self.device)
        if len(ids):
            step = weight.form.step(128)
            kernels.read_rows[len(ids), weight.row_size // step](
                ids, weight.arrays, out, weight.depth, weight.width, weight.row_size, FORM=weight.form, STEP=step
            )
        return out

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        out = torch.empty((len(x), self.encoded.width), dtype=x.dtype, device=x.device)
        return self.write_product(x, bias, out)

    def gated_product(self, x: Tensor, bias: Tensor | None, up: TritonWeight, up_bias: Tensor | None) -> Tensor:
        """Compute silu(x W^T + b) * (x U^T + c); U has the kind of W. Few rows take one launch."""
        if len(x) > _FUSED_ROWS:
            return gated_product(self.product(x, bias), up.product(x, up_bias))
        out = torch.empty((len(x), self.encoded.width), dtype=x.dtype, device=x.device)
        return self.write_product(x, bias, out, up, up_bias)

    def write_product(
        self, x: Tensor, bias: Tensor | None, out: Tensor, up: TritonWeight | None = None, up_bias: Tensor | None = None
    ) -> Tensor:
        """As `product`, or `gated_product`, into rows that may lie apart."""
        weight, num_rows, width = self.encoded, len(x), self.encoded.width
        if not num_rows:
            return out
        x = x if x.stride(1) == 1 else x.contiguous()
        sizes = tile_sizes(num_rows, weight.form, x.dtype)
        tiles = (triton.cdiv(num_rows, sizes["ROWS"]), triton.cdiv(width, sizes["COLUMNS"]))
        sums = None
        if self._counts is not None and (num_rows <= _FEW_ROWS or tiles[0] * tiles[1] <= _FEW_TILES):
            shape = (1 if up is None else 2, self._num_spans, num_rows, width)
            sums = torch.empty(shape, dtype=torch.float32, device=x.device)
        kernels.multiply[*tiles, 1 if sums is None else self._num_spans](
            x, weight.arrays, bias, None if up is None else up.encoded.arrays, up_bias, out, sums, self._counts,
            num_rows, x.stride(0), out.stride(0), weight.depth, width, weight.row_size, self._span, self._num_spans,
            FORM=weight.form, **sizes, OPERANDS=operands_of(x.dtype),
        )  # fmt: skip
        return out


class StackedWeight:
    """See `PackedWeight`: weights of several forms that share their inputs, which may be in another `order`."""

    def __init__(self, parts: Sequence[TritonWeight], order: Tensor | None) -> None:
        self._parts, self._order = parts, order
        self._width = sum(each.encoded.width for each in parts)
        self.num_bytes = sum(each.num_bytes for each in parts)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x if self._order is None else x[:, self._order]
        out = torch.empty((len(x), self._width), dtype=x.dtype, device=x.device)
        start = 0
        for part in self._parts:
            columns = slice(start, start + part.encoded.width)
            part.write_product(x, None if bias is None else bias[columns], out[:, columns])
            start = columns.stop
        return out


def tile_sizes(num_rows: int, form: Form, dtype: torch.dtype) -> dict[str, int]:
    """Return the kernel's tiles and warps. Any sizes sum in the same order."""
    if dtype.itemsize == 4:  # products of float32 take no tensor cores, but registers
        return {"ROWS": 16 if num_rows <= 16 else 32, "COLUMNS": _COLUMNS, "STEP": form.step(64), "num_warps": 4}
    step = 128 if form.bits == 8 else 64
    if num_rows > _FEW_ROWS and form.bits != 12:  # whose exceptions take registers
        return {"ROWS": 128, "COLUMNS": 128, "STEP": form.step(step // 2), "num_warps": 8}
    return {"ROWS": 16 if num_rows <= 16 else 64, "COLUMNS": _COLUMNS, "STEP": form.step(step), "num_warps": 4}


def quantize(weight: Tensor, bits: int) -> TritonWeight:
    """Round a weight to 8 or 4 bits. ValueError if its kernel does not work here."""
    return _checked(round_weight(weight, bits), weight.dtype, "leave out the quantization")


def compact(weight: Tensor) -> TritonWeight | None:
    """Give a weight of bfloat16 12 bits per number. None if it has many unusual exponents. ValueError as `quantize`."""
    found = compact_weight(weight)
    return None if found is None else _checked(found, weight.dtype, "use weights plain")


def pack_blocks(
    parts: Sequence[BlockRows], depth: int, dtype: torch.dtype, device: str
) -> TritonWeight | StackedWeight:
    """Pack a layer's projections, which take their inputs in one order. ValueError as `quantize`."""
    weights = []
    for (kind, group), same in groupby(parts, lambda part: (part.type, part.group)):
        rows = np.concatenate([each.rows for each in same])
        weight = open_blocks(kind, as_tensor(rows).to(device), depth, group)
        weights.append(_checked(weight, dtype, "set QUIRE_KERNELS=none to decode it"))
    if (order := parts[0].order) is None and len(weights) == 1:
        return weights[0]
    return StackedWeight(weights, None if order is None else as_tensor(order).to(device, torch.int64))


def encoded(packed: Any, weight: Any) -> EncodedWeight | None:
    """Return a layer's packed weight on a GPU, or its plain one; None if kernels would not read it."""
    if isinstance(packed, TritonWeight):
        return packed.encoded
    return None if packed is not None or not weight.is_contiguous() else plain_weight(weight)


def _checked(weight: EncodedWeight, dtype: torch.dtype, advice: str) -> TritonWeight:
    """Compare products of the first weight of a form with torch's, before requests depend on them, in spans and whole.
    The kernels are compiled here, or read from Triton's cache."""
    found = TritonWeight(weight, dtype)
    if (key := (*weight.kind, found.is_cut, dtype, weight.numbers.device)) not in _CHECKED:
        some, generator = weight.first_rows(_CHECKED_ROWS), torch.Generator().manual_seed(0)
        x = torch.randn((_FEW_ROWS + 6, weight.depth), generator=generator).to(weight.numbers.device, dtype)
        expected = (x.double() @ some.decode().double().T).to(dtype)
        for num_rows in (1, 20, len(x)):
            right = partial(expected.__getitem__, slice(num_rows))
            product = partial(TritonWeight(some, dtype, is_cut=found.is_cut).product, x[:num_rows], None)
            compare(f"weights of {weight.form.bits} bits", right, product, advice)
        _CHECKED.add(key)
    return found
