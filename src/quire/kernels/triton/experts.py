"""Grouped products of a mixture's experts. Pairs of a token and one of its experts are sorted by expert, and cut in
tiles of one expert. The grid has as many tiles as any routing needs, and those without pairs end at once: a CUDA graph
repeats it with other routings. A pair's bits do not depend on other pairs.

Experts' weights, [out, in] each, stay where they are: the first one's is an argument, and an expert's is UNIT *
offsets[expert] values behind it. `ends` are the numbers of pairs up to each expert's last one, of a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

UNIT = tl.constexpr(16)  # values: loads know that weights begin at multiples of 16 bytes


@triton.jit
def gate_up(
    x, order, ends, gate, gate_offsets, gate_bias, up, up_offsets, up_bias, out,
    CHOSEN: tl.constexpr, EXPERTS: tl.constexpr, HIDDEN: tl.constexpr, INNER: tl.constexpr,
    ACTIVATION: tl.constexpr, LIMIT: tl.constexpr, ALPHA: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute act(x W^T + b) * (x U^T + c) of sorted pairs. Grid: tiles of ROWS pairs, of COLUMNS inner features."""
    expert, pairs, is_pair = _find_tile(ends, EXPERTS, ROWS)
    if expert == EXPERTS:
        return
    columns, depth = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    is_column, is_pair = (columns < INNER)[None, :], is_pair[:, None]
    tokens = tl.load(order + pairs[:, None], is_pair, other=0) // CHOSEN
    rows = x + tokens * HIDDEN + depth[None, :]
    places = depth[:, None] + columns[None, :] * HIDDEN
    gate += tl.load(gate_offsets + expert) * UNIT
    up += tl.load(up_offsets + expert) * UNIT
    left = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    right = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for at in range(0, HIDDEN, DEPTH):
        values = tl.load(rows + at, is_pair & (at + depth < HIDDEN)[None, :], other=0.0).to(OPERANDS)
        is_weight = is_column & (at + depth < HIDDEN)[:, None]
        weights = tl.load(gate + places + at, is_weight, other=0.0).to(OPERANDS)
        left = tl.dot(values, weights, left, input_precision="ieee")
        weights = tl.load(up + places + at, is_weight, other=0.0).to(OPERANDS)
        right = tl.dot(values, weights, right, input_precision="ieee")
    if gate_bias is not None:
        at_bias = expert * INNER + columns[None, :]
        left += tl.load(gate_bias + at_bias, is_column, other=0.0).to(tl.float32)
        right += tl.load(up_bias + at_bias, is_column, other=0.0).to(tl.float32)
    if ACTIVATION == "silu":
        left /= 1 + tl.exp(-left)
    elif ACTIVATION == "gelu_tanh":  # 1 + tanh(y) is 2 sigmoid(2 y)
        left /= 1 + tl.exp(-1.5957691216057308 * (left + 0.044715 * left * left * left))
    else:
        left = tl.minimum(left, LIMIT)
        left /= 1 + tl.exp(-ALPHA * left)
        right = tl.minimum(tl.maximum(right, -LIMIT), LIMIT) + 1
    product = (left * right).to(out.dtype.element_ty)
    tl.store(out + pairs[:, None] * INNER + columns[None, :], product, is_pair & is_column)


@triton.jit
def down(
    inner, order, ends, weight, offsets, bias, factors, out,
    EXPERTS: tl.constexpr, HIDDEN: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Compute (h D^T + b) * factor of sorted pairs, in float32, to their places before sorting. Grid: tiles of ROWS
    pairs, of COLUMNS features."""
    expert, pairs, is_pair = _find_tile(ends, EXPERTS, ROWS)
    if expert == EXPERTS:
        return
    columns, depth = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    is_column, is_pair = (columns < HIDDEN)[None, :], is_pair[:, None]
    rows = inner + pairs[:, None] * INNER + depth[None, :]
    places = weight + tl.load(offsets + expert) * UNIT + depth[:, None] + columns[None, :] * INNER
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for at in range(0, INNER, DEPTH):
        values = tl.load(rows + at, is_pair & (at + depth < INNER)[None, :], other=0.0).to(OPERANDS)
        weights = tl.load(places + at, is_column & (at + depth < INNER)[:, None], other=0.0).to(OPERANDS)
        total = tl.dot(values, weights, total, input_precision="ieee")
    if bias is not None:
        total += tl.load(bias + expert * HIDDEN + columns[None, :], is_column, other=0.0).to(tl.float32)
    pairs = tl.load(order + pairs[:, None], is_pair, other=0)
    total *= tl.load(factors + pairs, is_pair, other=0.0)
    tl.store(out + pairs * HIDDEN + columns[None, :], total, is_pair & is_column)


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
