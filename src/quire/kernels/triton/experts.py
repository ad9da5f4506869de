"""Grouped products of a mixture's experts. Pairs of a token and one of its experts are sorted by expert, and cut in
tiles of one expert. The grid has as many tiles as any routing needs, and those without pairs end at once: a CUDA graph
repeats it with other routings. A pair's bits do not depend on other pairs.

Experts' weights, in a form of `weights`, stay where they are: the first one's arrays are arguments, and an expert's are
UNIT * offsets[array, expert] values behind them. `ends` are the numbers of pairs up to each expert's last one, of a
power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quire.kernels.triton.weights import add_products, finish_products

UNIT = tl.constexpr(16)  # values: loads know that weights begin at multiples of 16 bytes


@triton.jit
def gate_up(
    x, order, ends, gate, up, out, gate_size, up_size,
    CHOSEN: tl.constexpr, EXPERTS: tl.constexpr, HIDDEN: tl.constexpr, INNER: tl.constexpr,
    ACTIVATION: tl.constexpr, LIMIT: tl.constexpr, ALPHA: tl.constexpr, FORM: tl.constexpr, UP_FORM: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, UP_STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute act(x W^T + b) * (x U^T + c) of sorted pairs. `gate` and `up` are tuples: a weight, offsets, and a bias,
    [experts, width]. Grid: tiles of ROWS pairs, of COLUMNS inner features."""
    expert, pairs, is_pair = _find_tile(ends, EXPERTS, ROWS)
    if expert == EXPERTS:
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    pairs, is_pair = pairs[None, :], is_pair[None, :]
    rows = x + tl.load(order + pairs, is_pair, other=0) // CHOSEN * HIDDEN
    left = _multiply(gate, expert, columns, INNER, gate_size, rows, is_pair, HIDDEN, FORM, ROWS, STEP, OPERANDS)
    right = _multiply(up, expert, columns, INNER, up_size, rows, is_pair, HIDDEN, UP_FORM, ROWS, UP_STEP, OPERANDS)
    if ACTIVATION == "silu":
        left /= 1 + tl.exp(-left)
    elif ACTIVATION == "gelu_tanh":  # 1 + tanh(y) is 2 sigmoid(2 y)
        left /= 1 + tl.exp(-1.5957691216057308 * (left + 0.044715 * left * left * left))
    else:
        left = tl.minimum(left, LIMIT)
        left /= 1 + tl.exp(-ALPHA * left)
        right = tl.minimum(tl.maximum(right, -LIMIT), LIMIT) + 1
    product = (left * right).to(out.dtype.element_ty)
    tl.store(out + pairs * INNER + columns[:, None], product, is_pair & (columns < INNER)[:, None])


@triton.jit
def down(
    inner, order, ends, weight, factors, out, row_size,
    EXPERTS: tl.constexpr, HIDDEN: tl.constexpr, INNER: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute (h D^T + b) * factor of sorted pairs, in float32, to their places before sorting. Grid: tiles of ROWS
    pairs, of COLUMNS features."""
    expert, pairs, is_pair = _find_tile(ends, EXPERTS, ROWS)
    if expert == EXPERTS:
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    pairs, is_pair = pairs[None, :], is_pair[None, :]
    rows = inner + pairs * INNER
    total = _multiply(weight, expert, columns, HIDDEN, row_size, rows, is_pair, INNER, FORM, ROWS, STEP, OPERANDS)
    pairs = tl.load(order + pairs, is_pair, other=0)
    total *= tl.load(factors + pairs, is_pair, other=0.0)
    tl.store(out + pairs * HIDDEN + columns[:, None], total, is_pair & (columns < HIDDEN)[:, None])


@triton.jit
def _multiply(
    linear, expert, columns, WIDTH: tl.constexpr, row_size, rows, is_pair, DEPTH: tl.constexpr,
    FORM: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Return an expert's product, float32 [COLUMNS, ROWS]."""
    weight, offsets, bias, count = linear
    weight = _move(weight, offsets + expert, count)
    is_column, total = columns < WIDTH, tl.full((columns.shape[0], ROWS), 0.0, tl.float32)
    total = add_products(
        total, weight, columns, is_column, WIDTH, row_size, 0, row_size, rows, is_pair, DEPTH, FORM, STEP, OPERANDS
    )  # fmt: skip
    if bias is not None:
        bias += expert * WIDTH
    return finish_products(total, weight, bias, columns, is_column, rows, is_pair, FORM)


@triton.jit
def _move(arrays, offsets, count):
    """Return an expert's arrays."""
    numbers, scales, factors, table, starts, places, values = arrays
    numbers += tl.load(offsets) * UNIT
    if scales is not None:
        scales += tl.load(offsets + count) * UNIT
    if factors is not None:
        factors += tl.load(offsets + 2 * count) * UNIT
    if table is not None:
        table += tl.load(offsets + 3 * count) * UNIT
    if starts is not None:
        starts += tl.load(offsets + 4 * count) * UNIT
        places += tl.load(offsets + 5 * count) * UNIT
        values += tl.load(offsets + 6 * count) * UNIT
    return numbers, scales, factors, table, starts, places, values


@triton.jit
def add_up(parts, shared, shared_gate, out, CHOSEN: tl.constexpr, HIDDEN: tl.constexpr, COLUMNS: tl.constexpr):
    """Add the parts of each token, in order, to its shared output, times the sigmoid of a gate; both may be None. Grid:
    tokens, tiles of COLUMNS features."""
    token, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask, place = columns < HIDDEN, token * HIDDEN + columns
    total = tl.full((COLUMNS,), 0.0, tl.float32)
    if shared is not None:
        total += tl.load(shared + place, mask, other=0.0).to(tl.float32)
    if shared_gate is not None:
        total /= 1 + tl.exp(-tl.load(shared_gate + token).to(tl.float32))
    for number in range(CHOSEN):
        total += tl.load(parts + (token * CHOSEN + number) * HIDDEN + columns, mask, other=0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask)


@triton.jit
def _find_tile(ends, EXPERTS: tl.constexpr, ROWS: tl.constexpr):
    """Return this program's expert, EXPERTS if it has none, and its pairs."""
    tile, numbers = tl.program_id(0), tl.arange(0, EXPERTS)
    end, start = tl.load(ends + numbers), tl.load(ends + numbers - 1, numbers > 0, other=0)
    num_tiles = (end - start + ROWS - 1) // ROWS
    tile_end = tl.cumsum(num_tiles)
    expert = tl.sum((tile_end <= tile).to(tl.int32))
    is_mine = numbers == expert
    first = tl.sum(tl.where(is_mine, start + (tile - tile_end + num_tiles) * ROWS, 0))
    pairs = first.to(tl.int64) + tl.arange(0, ROWS)
    return expert, pairs, pairs < tl.sum(tl.where(is_mine, end, 0))
