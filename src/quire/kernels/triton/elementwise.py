"""Norms, gates and rotary positions, each in one pass over memory, in float32 inside and rounded once. A row's bits do
not depend on other rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
def rms_norm(
    y, x, weight, out, num_rows, y_stride, SIZE: tl.constexpr, EPS: tl.constexpr, OFFSET: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute y / rms(y) * (weight + OFFSET) of rows; before, add x to y in place, unless it is None. Grid: tiles of
    ROWS rows. COLUMNS is SIZE rounded up to a power of two."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    mask = (rows < num_rows)[:, None] & (columns < SIZE)[None, :]
    dense = rows[:, None] * SIZE + columns[None, :]
    places = y + rows[:, None] * y_stride + columns[None, :]
    values = tl.load(places, mask, other=0.0).to(tl.float32)
    if x is not None:
        total = (values + tl.load(x + dense, mask, other=0.0).to(tl.float32)).to(y.dtype.element_ty)
        tl.store(places, total, mask)
        values = total.to(tl.float32)
    weights = tl.load(weight + columns, columns < SIZE, other=0.0).to(tl.float32) + OFFSET
    factors = tl.rsqrt(tl.sum(values * values, 1) / SIZE + EPS)
    normed = values * factors[:, None] * weights[None, :]
    tl.store(out + dense, normed.to(out.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["num_rows"])
def gate(
    left, right, out, num_rows, left_stride, right_stride, SIZE: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute silu(left) * right of rows. Grid: tiles of ROWS rows, tiles of COLUMNS."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (rows < num_rows) & (columns < SIZE)
    x = tl.load(left + rows * left_stride + columns, mask, other=0.0).to(tl.float32)
    y = tl.load(right + rows * right_stride + columns, mask, other=0.0).to(tl.float32)
    tl.store(out + rows * SIZE + columns, (x / (1 + tl.exp(-x)) * y).to(out.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["num_tokens"])
def rotate_heads(
    qkv, cosines, sines, query_scale, query_weight, key_weight, num_tokens,
    NUM_QUERIES: tl.constexpr, NUM_KEYS: tl.constexpr, STEP: tl.constexpr, NUM_HEADS: tl.constexpr,
    DIM: tl.constexpr, HALF: tl.constexpr, EPS: tl.constexpr, OFFSET: tl.constexpr, IS_INTERLEAVED: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Norm, rotate and scale query and key heads in place, as `ops.functions.rotate_heads` does with weights of one
    head. Grid: tiles of ROWS heads of tokens. PAIRS and REST are powers of two: for HALF pairs of features, and for the
    features after them, 0 to leave these."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tokens, heads = (rows // (NUM_QUERIES + NUM_KEYS)).to(tl.int64), rows % (NUM_QUERIES + NUM_KEYS)
    is_row, is_query = tokens < num_tokens, heads < NUM_QUERIES
    heads = tl.where(is_query, heads * STEP, heads + NUM_QUERIES * (STEP - 1))
    starts = qkv + ((tokens * NUM_HEADS + heads) * DIM)[:, None]
    pairs = tl.arange(0, PAIRS)
    first = pairs * 2 if IS_INTERLEAVED else pairs
    second = first + (1 if IS_INTERLEAVED else HALF)
    is_pair = is_row[:, None] & (pairs < HALF)[None, :]
    left = tl.load(starts + first[None, :], is_pair, other=0.0).to(tl.float32)
    right = tl.load(starts + second[None, :], is_pair, other=0.0).to(tl.float32)
    squares = tl.sum(left * left, 1) + tl.sum(right * right, 1)
    factors = tl.full((ROWS,), 1.0, tl.float32)
    if query_scale is not None:
        factors = tl.load(query_scale + tokens, is_row & is_query, other=1.0).to(tl.float32)
    if REST > 0:
        later = 2 * HALF + tl.arange(0, REST)
        is_rest = is_row[:, None] & (later < DIM)[None, :]
        rest = tl.load(starts + later[None, :], is_rest, other=0.0).to(tl.float32)
        if query_weight is not None:
            squares += tl.sum(rest * rest, 1)
            rest *= _weights(query_weight, key_weight, later, later < DIM, is_query, OFFSET)
    if query_weight is not None:
        scales = tl.rsqrt(squares / DIM + EPS)[:, None]
        left *= scales * _weights(query_weight, key_weight, first, pairs < HALF, is_query, OFFSET)
        right *= scales * _weights(query_weight, key_weight, second, pairs < HALF, is_query, OFFSET)
    if REST > 0:
        if query_weight is not None:
            rest *= scales
        tl.store(starts + later[None, :], (rest * factors[:, None]).to(qkv.dtype.element_ty), is_rest)
    if HALF > 0:
        angles = (tokens * (2 * HALF))[:, None] + pairs[None, :]
        cos, sin = tl.load(cosines + angles, is_pair).to(tl.float32), tl.load(sines + angles + HALF, is_pair)
        sin = sin.to(tl.float32)
        turned = (left * cos - right * sin) * factors[:, None]
        tl.store(starts + first[None, :], turned.to(qkv.dtype.element_ty), is_pair)
        turned = (right * cos + left * sin) * factors[:, None]
        tl.store(starts + second[None, :], turned.to(qkv.dtype.element_ty), is_pair)


@triton.jit
def _weights(query_weight, key_weight, features, mask, is_query, OFFSET: tl.constexpr):
    """Return norms' weights for rows that are query heads or key heads."""
    of_queries = tl.load(query_weight + features, mask, other=0.0).to(tl.float32)
    of_keys = tl.load(key_weight + features, mask, other=0.0).to(tl.float32)
    return tl.where(is_query[:, None], of_queries[None, :], of_keys[None, :]) + OFFSET
