"""Linear layers with weights in the forms of `weights`.

A row's numbers are cut in spans at fixed positions. Each span is summed from its start, and spans are added in order,
so the bits of a row of x do not depend on other rows, nor on whether spans run in parallel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quire.kernels.triton.weights import add_products, finish_products


@triton.jit(do_not_specialize=["num_rows", "num_spans"])
def multiply(
    x, weight, bias, out, sums, num_rows, x_stride, out_stride, depth, width, row_size, span, num_spans,
    FORM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute x W^T + bias; with `sums`, a span's part of x W^T, for `join_spans`. Grid: tiles of ROWS rows, tiles of
    COLUMNS output features, and spans if there are `sums`. OPERANDS is the dtype of products."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[None, :]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column, x_rows = rows < num_rows, columns < width, x + rows * x_stride
    first, last = 0, num_spans
    if sums is not None:
        first = tl.program_id(2)
        last = first + 1
    total = tl.full((COLUMNS, ROWS), 0.0, tl.float32)
    for part in range(first, last):
        start, end = part * span, tl.minimum(part * span + span, row_size)
        total += add_products(
            tl.full((COLUMNS, ROWS), 0.0, tl.float32), weight, columns, is_column, width, row_size, start, end,
            x_rows, is_row, depth, FORM, STEP, OPERANDS,
        )  # fmt: skip
    columns = columns[:, None]
    mask = is_row & is_column[:, None]
    if sums is not None:
        tl.store(sums + (first * num_rows + rows) * width + columns, total, mask)
    else:
        total = finish_products(total, weight, bias, rows, columns, x_rows, is_row, width, FORM)
        tl.store(out + rows * out_stride + columns, total.to(out.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["num_rows", "num_spans"])
def join_spans(
    x, weight, bias, out, sums, num_rows, x_stride, out_stride, width, num_spans,
    FORM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the spans' parts, float32 [num_spans, num_rows, width], and finish the product. Grid: tiles of ROWS rows,
    tiles of COLUMNS output features."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    is_row = rows < num_rows
    mask = is_row & (columns < width)
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for part in range(num_spans):
        total += tl.load(sums + (part * num_rows + rows) * width + columns, mask, other=0.0)
    total = finish_products(total, weight, bias, rows, columns, x + rows * x_stride, is_row, width, FORM)
    tl.store(out + rows * out_stride + columns, total.to(out.dtype.element_ty), mask)
