"""Linear layers, and the gated products of MLPs, with weights in the forms of `weights`.

A row's numbers are cut in spans at fixed positions. Each span is summed from its start, and spans are added in order,
so the bits of a row of x do not depend on other rows, nor on whether spans run in parallel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quire.kernels.triton.weights import add_products, decode, finish_products, load_numbers


@triton.jit(do_not_specialize=["num_rows", "num_spans"])
def multiply(
    x, weight, bias, up, up_bias, out, sums, counts, num_rows, x_stride, out_stride, depth, width, row_size, span,
    num_spans,
    FORM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute x W^T + bias, or silu(that) * (x U^T + up_bias) if `up` is not None. Grid: tiles of ROWS rows, tiles of
    COLUMNS output features, and spans if there are `sums`, float32 [1 or 2, num_spans, num_rows, width]. The last
    program of a tile adds them, by `counts`, int32, which are zero before and after. OPERANDS is the dtype of
    products."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[None, :]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column, x_rows = rows < num_rows, columns < width, x + rows * x_stride
    mask, place = is_row & is_column[:, None], rows * width + columns[:, None]
    first, last, other = 0, num_spans, 0.0
    if sums is not None:
        first = tl.program_id(2)
        last = first + 1
    total = _add_spans(
        weight, columns, is_column, width, row_size, first, last, span, x_rows, is_row, depth, FORM, ROWS, COLUMNS,
        STEP, OPERANDS,
    )  # fmt: skip
    if up is not None:
        other = _add_spans(
            up, columns, is_column, width, row_size, first, last, span, x_rows, is_row, depth, FORM, ROWS, COLUMNS,
            STEP, OPERANDS,
        )  # fmt: skip
    if sums is not None:
        size = num_rows.to(tl.int64) * width
        tl.store(sums + first * size + place, total, mask)
        if up is not None:
            tl.store(sums + (num_spans + first) * size + place, other, mask)
        tl.debug_barrier()
        count = counts + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        if tl.atomic_add(count, 1) < num_spans - 1:
            return
        tl.store(count, 0)
        total = _join_spans(sums + place, size, num_spans, mask)
        if up is not None:
            other = _join_spans(sums + num_spans * size + place, size, num_spans, mask)
    total = finish_products(total, weight, bias, columns, is_column, x_rows, is_row, FORM).to(out.dtype.element_ty)
    if up is not None:  # of rounded products, as without a fused kernel
        other = finish_products(other, up, up_bias, columns, is_column, x_rows, is_row, FORM).to(out.dtype.element_ty)
        wide = total.to(tl.float32)
        total = (wide / (1 + tl.exp(-wide)) * other.to(tl.float32)).to(out.dtype.element_ty)
    tl.store(out + rows * out_stride + columns[:, None], total, mask)


@triton.jit
def _add_spans(
    weight, columns, is_column, width, row_size, first, last, span, x_rows, is_row, depth,
    FORM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Return x W^T of spans, float32 [COLUMNS, ROWS]."""
    total = tl.full((COLUMNS, ROWS), 0.0, tl.float32)
    for part in range(first, last):
        start, end = part * span, tl.minimum(part * span + span, row_size)
        total += add_products(
            tl.full((COLUMNS, ROWS), 0.0, tl.float32), weight, columns, is_column, width, row_size, start, end,
            x_rows, is_row, depth, FORM, STEP, OPERANDS,
        )  # fmt: skip
    return total


@triton.jit
def _join_spans(sums, size, num_spans, mask):
    """Add what programs wrote, in order, from beyond this processor's cache."""
    total = tl.load(sums, mask, other=0.0, cache_modifier=".cg")
    for part in range(1, num_spans):
        total += tl.load(sums + part * size, mask, other=0.0, cache_modifier=".cg")
    return total


@triton.jit
def read_rows(ids, weight, out, depth, width, row_size, FORM: tl.constexpr, STEP: tl.constexpr):
    """Write rows of a weight with groups, [num_ids, depth]. Grid: ids, int64, and STEP bytes."""
    HALVES: tl.constexpr = 1 if FORM[0] == 8 else 2
    row = tl.load(ids + tl.program_id(0) + tl.arange(0, 1))
    row = tl.minimum(tl.maximum(row, 0), width - 1)
    is_row, at = row >= 0, tl.program_id(1) * STEP
    out += tl.program_id(0).to(tl.int64) * depth
    _, _, _, _, starts, places, values = weight
    numbers = load_numbers(weight, row, is_row, row_size, at, row_size, FORM, STEP)
    for half in tl.static_range(HALVES):
        inputs, part = decode(weight, numbers, row, is_row, width, row_size, at, half, FORM, STEP)
        part = part.to(out.dtype.element_ty)
        if starts is not None:
            for number in range(tl.sum(tl.load(starts + row)), tl.sum(tl.load(starts + row + 1))):
                value = tl.load(values + number).to(out.dtype.element_ty)
                part = tl.where(inputs[None, :] == tl.load(places + number), value, part)
        tl.store(out + inputs[None, :], part, (inputs < depth)[None, :])
