"""Layers with recurrent states (csrc/linear_attention.h, csrc/short_conv.h): their convolution and recurrence.

A state is cut into records of RECORD floats, which lie anywhere in `memory`; a table has them in order. The `plan` is
that of `attention.py`. At `at` it has the number of sequences, and where sequences, runs (`attention/states.py`) and
tables begin in it. A sequence is: its first run; the run after its last; the table of the state before, or -1. A run
is: first row; row after the last; the table of the state after. Grids begin with sequences from the `first` on.

A program goes through a sequence's tokens in order, so a token's bits do not depend on runs, steps, or neighbours.
"""

from __future__ import annotations

import triton
import triton.language as tl

TILE = tl.constexpr(32)  # columns of a matrix that are stored together


@triton.jit
def _fields(plan, at, index):
    """Return the fields of a sequence or run, which begin in the plan where it has at `at`."""
    fields = plan + tl.load(plan + at) + index * 3
    return tl.load(fields), tl.load(fields + 1), tl.load(fields + 2)


@triton.jit
def _state(memory, plan, at, table, places, RECORD: tl.constexpr, NUM_RECORDS: tl.constexpr):
    """Return pointers to places in a state; without one, to memory that is not read."""
    records = plan + tl.load(plan + at + 3) + tl.maximum(table, 0) * NUM_RECORDS
    return memory + tl.load(records + places // RECORD).to(tl.int64) * RECORD + places % RECORD


@triton.jit
def _softplus(x):
    small = tl.exp(-tl.abs(x))
    more = 1 + small
    return tl.maximum(x, 0.0) + tl.where(more == 1, small, tl.log(more) * (small / (more - 1)))


@triton.jit
def _inputs(
    x, rows, end, begin, channels, row_stride, last, second, third, CHANNELS: tl.constexpr, GATED: tl.constexpr
):
    """Return a convolution's inputs in float32, [rows, channels]: those before row `begin` are a state's."""
    at = x + rows.to(tl.int64)[:, None] * row_stride + channels[None, :]
    mask = ((rows >= begin) & (rows < end))[:, None] & (channels < CHANNELS)[None, :]
    given = tl.load(at, mask, other=0.0).to(tl.float32)
    if GATED:
        given *= tl.load(at + 2 * CHANNELS, mask, other=0.0).to(tl.float32)
    back = (begin - rows)[:, None]
    given = tl.where(back == 1, last[None, :], given)
    given = tl.where(back == 2, second[None, :], given)
    return tl.where(back == 3, third[None, :], given)


@triton.jit(do_not_specialize=["at", "first"])
def convolve(
    x, weight, bias, out, memory, plan, at, first, row_stride, start, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    GATED: tl.constexpr, RECORD: tl.constexpr, NUM_RECORDS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Convolve the inputs of sequences, and write the last ones to their states, from `start` on. Grid: sequences,
    COLUMNS channels. GATED: x has the features b, c and x, and `out` is c times the convolution of b x. Else it is SiLU
    of the convolution of x."""
    sequence = first + tl.program_id(0)
    channels = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = channels < CHANNELS
    if sequence >= tl.load(plan + at):
        return
    run, end_run, source = _fields(plan, at + 1, sequence)
    begin, _, _ = _fields(plan, at + 2, run)
    has_state = is_channel & (source >= 0)
    places = start + tl.where(is_channel, channels, 0)
    before = _state(memory, plan, at, source, places + (TAPS - 2) * CHANNELS, RECORD, NUM_RECORDS)
    last = tl.load(before, has_state, other=0.0)
    before = _state(memory, plan, at, source, places + (TAPS - 3) * CHANNELS, RECORD, NUM_RECORDS)
    second = tl.load(before, has_state, other=0.0)
    third = tl.load(_state(memory, plan, at, source, places, RECORD, NUM_RECORDS), has_state, other=0.0)
    tl.debug_barrier()  # the state after may overwrite that before, which all threads read
    for index in range(run, end_run):
        row, end, target = _fields(plan, at + 2, index)
        for at_row in range(row, end, ROWS):
            rows = at_row + tl.arange(0, ROWS)
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            for tap in tl.static_range(TAPS):
                given = _inputs(
                    x, rows + (tap - TAPS + 1), end, begin, channels, row_stride, last, second, third, CHANNELS, GATED
                )
                total += given * tl.load(weight + channels * TAPS + tap, is_channel, other=0.0).to(tl.float32)[None, :]
            if bias is not None:
                total += tl.load(bias + channels, is_channel, other=0.0).to(tl.float32)[None, :]
            mask, rows = (rows < end)[:, None] & is_channel[None, :], rows.to(tl.int64)[:, None]
            if GATED:
                total *= tl.load(x + CHANNELS + rows * row_stride + channels[None, :], mask, other=0.0).to(tl.float32)
            else:
                total *= tl.sigmoid(total)
            tl.store(out + rows * CHANNELS + channels[None, :], total.to(out.dtype.element_ty), mask)
        for back in tl.static_range(1, TAPS):
            rows = end - back + tl.arange(0, 1)
            given = _inputs(x, rows, end, begin, channels, row_stride, last, second, third, CHANNELS, GATED)
            to = _state(memory, plan, at, target, places + (TAPS - 1 - back) * CHANNELS, RECORD, NUM_RECORDS)
            tl.store(to[None, :], given, is_channel[None, :])


@triton.jit(do_not_specialize=["at", "first"])
def recur(
    mixed, gates, rate, dt_bias, skip, out, memory, plan, at, first, start, IS_DELTA: tl.constexpr, Q: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, CHANNELS: tl.constexpr, GROUPS: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, HEADS: tl.constexpr, RECORD: tl.constexpr, NUM_RECORDS: tl.constexpr, KEYS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Update COLUMNS columns of a head's matrix, from `start` on in a state, by the tokens of a sequence. Outputs are
    float32 [rows, HEADS, VALUE_DIM]. Grid: sequences, COLUMNS values. Queries, keys and values begin at Q, K and V in
    `mixed`, [rows, CHANNELS]. Gates are a, then b; rate is A_log. KEYS is KEY_DIM rounded up to a power of two.

    With the matrix S, keys of length one and a decay d, a token has the change c = b (v - d k S) and the output
    d q S + (q k) c, so all its sums over keys begin at once. The next token is read meanwhile."""
    sequence = first + tl.program_id(0)
    value = tl.program_id(1) * COLUMNS
    if sequence >= tl.load(plan + at):
        return
    run, end_run, source = _fields(plan, at + 1, sequence)
    head = value // VALUE_DIM
    keys, columns = tl.arange(0, KEYS), tl.arange(0, COLUMNS)
    is_key = keys < KEY_DIM
    mask = is_key[:, None] & (columns < COLUMNS)[None, :]
    places = start + (value // TILE * KEY_DIM + tl.where(is_key, keys, 0)) * TILE  # of rows, each in one record
    columns += value % TILE
    of_rows = _state(memory, plan, at, source, places, RECORD, NUM_RECORDS)
    matrix = tl.load(of_rows[:, None] + columns[None, :], mask & (source >= 0), other=0.0)
    tl.debug_barrier()
    of_keys = mixed + head // GROUPS * KEY_DIM + keys
    of_values = mixed + V + value // TILE * TILE + columns
    gates += head
    scale, shift = -tl.exp(tl.load(rate + head).to(tl.float32)), tl.load(dt_bias + head).to(tl.float32)
    for index in range(run, end_run):
        row, end, target = _fields(plan, at + 2, index)
        next_q, next_k, next_v, next_a, next_b = _token(
            of_keys + Q, of_keys + K, of_values, gates, tl.cast(row, tl.int64), is_key, CHANNELS, HEADS, IS_DELTA
        )
        for at_row in range(row, end):
            token = tl.cast(at_row, tl.int64)
            q, k, v, a, b = next_q, next_k, next_v, next_a, next_b
            next_q, next_k, next_v, next_a, next_b = _token(
                of_keys + Q, of_keys + K, of_values, gates, tl.minimum(token + 1, end - 1), is_key, CHANNELS, HEADS,
                IS_DELTA,
            )  # fmt: skip
            step = _softplus(a.to(tl.float32) + shift)
            decay = tl.exp(scale * step)
            given, product = tl.sum(q[:, None] * matrix, 0), tl.sum(q * k, 0)
            if IS_DELTA:
                key_norm = 1 / tl.sqrt_rn(tl.sum(k * k, 0) + 1e-6)
                query_norm = 1 / (tl.sqrt_rn(tl.sum(q * q, 0) + 1e-6) * tl.sqrt_rn(tl.full((), KEY_DIM, tl.float32)))
                found = tl.sum(k[:, None] * matrix, 0) * key_norm
                change = (v - decay * found) * (tl.sigmoid(b.to(tl.float32)) * key_norm)
            else:
                query_norm = 1.0
                change = v * step
            matrix = matrix * decay + k[:, None] * change[None, :]
            given = (given * decay + product * change) * query_norm
            if not IS_DELTA:
                given += tl.load(skip + head).to(tl.float32) * v
            tl.store(out + token * (HEADS * VALUE_DIM) + value // TILE * TILE + columns, given)
        of_rows = _state(memory, plan, at, target, places, RECORD, NUM_RECORDS)
        tl.store(of_rows[:, None] + columns[None, :], matrix, mask)


@triton.jit
def _token(q, k, v, gates, token, is_key, CHANNELS: tl.constexpr, HEADS: tl.constexpr, IS_DELTA: tl.constexpr):
    """Return a token's query, key, values and gates; without the delta rule, a is there twice."""
    at = token * CHANNELS
    gate = gates + token * (HEADS * (1 + IS_DELTA))
    second = tl.load(gate + HEADS * IS_DELTA)
    return (
        tl.load(q + at, is_key, other=0.0),
        tl.load(k + at, is_key, other=0.0),
        tl.load(v + at),
        tl.load(gate),
        second,
    )
