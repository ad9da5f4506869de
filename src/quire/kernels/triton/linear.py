"""Linear layers with weights of 8 or 4 bits, decoded in registers. x keeps its dtype; sums are float32.

A row of a weight is an output feature. With 8 bits, each byte is an integer, and each row has a scale, float32 [width].
With 4 bits, a group of 64 weights has a scale and a low, bfloat16 [groups, 2, width]; a weight is low + scale times
integer. The lower halves of 64 bytes hold the integers of a group, their upper halves those of the next one.

A row's bytes are cut in spans at fixed positions. Each span is summed from its start, and spans are added in order, so
the bits of a row of x do not depend on other rows, nor on whether spans run in parallel.
"""

from __future__ import annotations

import triton
import triton.language as tl

GROUP = tl.constexpr(64)


@triton.jit(do_not_specialize=["num_rows", "num_spans"])
def multiply(
    x, weight, scales, bias, out, sums, num_rows, x_stride, depth, width, row_bytes, span, num_spans,
    BITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute x W^T + bias; with `sums`, a span's part of x W^T, for `join_spans`. Grid: tiles of ROWS rows, tiles of
    COLUMNS output features, and spans if there are `sums`. OPERANDS is the dtype of products."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.arange(0, STEP)
    is_row, is_column = (rows < num_rows)[None, :], columns < width
    x_rows = x + rows[None, :] * x_stride
    w_rows = weight + columns.to(tl.int64)[:, None] * row_bytes
    first, last = 0, num_spans
    if sums is not None:
        first = tl.program_id(2)
        last = first + 1
    total = tl.full((COLUMNS, ROWS), 0.0, tl.float32)
    for part in range(first, last):
        part_sum = tl.full((COLUMNS, ROWS), 0.0, tl.float32)
        for at in range(part * span, tl.minimum(part * span + span, row_bytes), STEP):
            packed = tl.load(w_rows + (at + steps)[None, :], is_column[:, None], other=0)
            if BITS == 8:
                part_sum = _add_product(part_sum, packed.to(OPERANDS), x_rows, at + steps, depth, is_row)
            else:
                group = scales + at // GROUP * 4 * width + columns
                inputs = at + at // GROUP * GROUP + steps
                low = _decode(packed & 15, group, width, is_column).to(OPERANDS)
                part_sum = _add_product(part_sum, low, x_rows, inputs, depth, is_row)
                high = _decode((packed >> 4) & 15, group + 2 * width, width, is_column).to(OPERANDS)
                part_sum = _add_product(part_sum, high, x_rows, inputs + GROUP, depth, is_row)
        total += part_sum
    if sums is not None:
        at = (first * num_rows + rows)[None, :] * width + columns[:, None]
        tl.store(sums + at, total, is_row & is_column[:, None])
    else:
        _write(total, scales, bias, out, rows[None, :], columns[:, None], is_row, width, BITS)


@triton.jit
def _decode(integers, group, width, is_column):
    """Return weights of a group, float32 [COLUMNS, STEP]."""
    scale = tl.load(group, is_column, other=0.0).to(tl.float32)[:, None]
    low = tl.load(group + width, is_column, other=0.0).to(tl.float32)[:, None]
    places = (integers.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0  # faster than a conversion
    return places * scale + low


@triton.jit
def _add_product(sums, weights, x_rows, inputs, depth, is_row):
    x = tl.load(x_rows + inputs[:, None], is_row & (inputs < depth)[:, None], other=0.0).to(weights.dtype)
    return tl.dot(weights, x, sums, input_precision="ieee")


@triton.jit
def _write(total, scales, bias, out, rows, columns, is_row, width, BITS: tl.constexpr):
    is_column = columns < width
    if BITS == 8:
        total *= tl.load(scales + columns, is_column, other=0.0)
    if bias is not None:
        total += tl.load(bias + columns, is_column, other=0.0).to(tl.float32)
    tl.store(out + rows * width + columns, total.to(out.dtype.element_ty), is_row & is_column)


@triton.jit(do_not_specialize=["num_rows", "num_spans"])
def join_spans(
    sums, scales, bias, out, num_rows, width, num_spans, BITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Add the spans' parts, float32 [num_spans, num_rows, width], and finish the product. Grid: tiles of ROWS rows,
    tiles of COLUMNS output features."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    mask = (rows < num_rows) & (columns < width)
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for part in range(num_spans):
        total += tl.load(sums + (part * num_rows + rows) * width + columns, mask, other=0.0)
    _write(total, scales, bias, out, rows, columns, rows < num_rows, width, BITS)
