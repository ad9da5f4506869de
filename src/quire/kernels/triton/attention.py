"""Paged attention: write K and V to their blocks, attend, and join the parts of long contexts.

Online softmax in float32 (FlashAttention, arXiv:2205.14135) over tiles of keys; a decode's context is cut in spans,
which run in parallel (Flash-Decoding). Tiles and spans begin at fixed positions of the sequence, so a row's bits depend
neither on other sequences nor on the number of processors: a tile that a row does not see leaves its sums as they are.

A *row* is a query head of a token. The rows of a sequence and a KV head are numbered by token and head, so a tile of
rows has as many as a product takes, with any number of heads per KV head.

The `plan` of a step is one array of int32. At `at`, a launch finds the number of its units or merges and where they
begin, so a launch with any number of programs does all of them, and a CUDA graph repeats it with other plans.

A *unit* is a tile of rows and a range of keys: where the sequence's block table begins in the plan; row in q of its
first query; its number of queries; position of the first one; first row of the tile; first key, a multiple of KEYS; key
after the last; place of the sequence's first query in `sums` and `stats`, -1 if the unit has all keys that its rows
see; step from one query's place to the next.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
UNIT_FIELDS = tl.constexpr(9)
MERGE_FIELDS = tl.constexpr(3)


@triton.jit(do_not_specialize=["num_tokens"])
def store_kv(
    k, v, cache, plan, num_tokens, k_token_stride, k_head_stride, v_token_stride, v_head_stride, block_stride,
    keys_at, values_at,
    SLOTS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write K, and V unless it is None, to the tokens' slots, from SLOTS on in the plan; -1 is none. Grid: tiles of
    ROWS heads of tokens. KEYS and VALUES are the sizes rounded up to powers of two."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tokens, heads = rows // NUM_KV_HEADS, rows % NUM_KV_HEADS
    slot = tl.load(plan + SLOTS + tokens, tokens < num_tokens, other=-1)
    blocks = cache + (slot // BLOCK_SIZE).to(tl.int64) * block_stride
    places = heads * BLOCK_SIZE + slot % BLOCK_SIZE
    dims = tl.arange(0, KEYS)
    mask = (slot >= 0)[:, None] & (dims < KEY_DIM)[None, :]
    keys = tl.load(k + (tokens * k_token_stride + heads * k_head_stride)[:, None] + dims[None, :], mask)
    tl.store((blocks + keys_at + places * KEY_DIM)[:, None] + dims[None, :], keys, mask)
    if v is not None:
        dims = tl.arange(0, VALUES)
        mask = (slot >= 0)[:, None] & (dims < VALUE_DIM)[None, :]
        values = tl.load(v + (tokens * v_token_stride + heads * v_head_stride)[:, None] + dims[None, :], mask)
        tl.store((blocks + values_at + places * VALUE_DIM)[:, None] + dims[None, :], values, mask)


@triton.jit
def _cap(scores, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    """Return SOFTCAP tanh(SCALE scores / SOFTCAP), for powers of two."""
    e = tl.exp2(tl.abs(scores) * (-2 * LOG2_E * SCALE / SOFTCAP))
    capped = (SOFTCAP * LOG2_E) * (1 - e) / (1 + e)
    return tl.where(scores < 0, -capped, capped)


@triton.jit
def _write_rows(
    highest, total, weighted, sinks, out, sums, stats, tokens, places, heads, is_row, dims, is_whole,
    NUM_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    """Write rows to `out` if they are whole, and else to their places for `join_parts`."""
    mask = is_row[:, None] & (dims < VALUE_DIM)[None, :]
    if is_whole:
        if sinks is not None:
            sink = tl.load(sinks + heads, is_row, other=0.0).to(tl.float32) * LOG2_E
            now = tl.maximum(highest, sink)
            factor = tl.exp2(highest - now)
            total = total * factor + tl.exp2(sink - now)
            weighted = weighted * factor[:, None]
        at = tokens.to(tl.int64) * NUM_HEADS + heads
        mean = weighted / tl.where(is_row, total, 1.0)[:, None]
        tl.store(out + at[:, None] * VALUE_DIM + dims[None, :], mean.to(out.dtype.element_ty), mask)
    else:
        at = places.to(tl.int64) * NUM_HEADS + heads
        tl.store(sums + at[:, None] * VALUE_DIM + dims[None, :], weighted, mask)
        tl.store(stats + at * 2, highest, is_row)
        tl.store(stats + at * 2 + 1, total, is_row)


@triton.jit(do_not_specialize=["at"])
def attend(
    q, cache, sinks, out, sums, stats, plan, at, q_token_stride, q_head_stride, block_stride, keys_at, values_at,
    NUM_KV_HEADS: tl.constexpr, GROUPS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
    VALUES: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Attend with each unit's rows to its keys. Grid: some units at a time, KV heads. Features of keys are read in two
    pieces of FIRST and REST, powers of two, as 96 is 64 + 32. OPERANDS is the dtype of products."""
    head = tl.program_id(1)
    num_units, units = tl.load(plan + at), plan + tl.load(plan + at + 1)
    for index in range(tl.program_id(0), num_units, tl.num_programs(0)):
        _attend_unit(
            units + index * UNIT_FIELDS, head, q, cache, sinks, out, sums, stats, plan, q_token_stride, q_head_stride,
            block_stride, keys_at, values_at, NUM_KV_HEADS, GROUPS, KEY_DIM, VALUE_DIM, VALUE_STRIDE, BLOCK_SIZE, SCALE,
            SOFTCAP, WINDOW, ROWS, KEYS, FIRST, REST, VALUES, OPERANDS,
        )  # fmt: skip


@triton.jit
def _attend_unit(
    unit, head, q, cache, sinks, out, sums, stats, plan, q_token_stride, q_head_stride, block_stride, keys_at,
    values_at,
    NUM_KV_HEADS: tl.constexpr, GROUPS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
    VALUES: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    table = plan + tl.load(unit)
    token, num_queries, context, row = tl.load(unit + 1), tl.load(unit + 2), tl.load(unit + 3), tl.load(unit + 4)
    key_start, key_end, place, step = tl.load(unit + 5), tl.load(unit + 6), tl.load(unit + 7), tl.load(unit + 8)
    rows = row + tl.arange(0, ROWS)
    queries = rows // GROUPS
    query_heads = head * GROUPS + rows % GROUPS
    is_row, positions = queries < num_queries, context + queries

    first, rest, dims = tl.arange(0, FIRST), FIRST + tl.arange(0, REST), tl.arange(0, VALUES)
    q_rows = q + (token + queries).to(tl.int64)[:, None] * q_token_stride + query_heads[:, None] * q_head_stride
    q_first = tl.load(q_rows + first[None, :], is_row[:, None] & (first < KEY_DIM)[None, :], other=0.0).to(OPERANDS)
    if FIRST < KEY_DIM:
        q_rest = tl.load(q_rows + rest[None, :], is_row[:, None] & (rest < KEY_DIM)[None, :], other=0.0).to(OPERANDS)

    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    weighted = tl.full((ROWS, VALUES), 0.0, tl.float32)
    for start in range(key_start, key_end, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_key = keys < key_end
        blocks = tl.load(table + keys // BLOCK_SIZE, is_key, other=0).to(tl.int64) * block_stride
        places = head * BLOCK_SIZE + keys % BLOCK_SIZE
        k_rows = cache + keys_at + blocks[:, None] + places[:, None] * KEY_DIM
        k = tl.load(k_rows + first[None, :], is_key[:, None] & (first < KEY_DIM)[None, :], other=0.0)
        scores = tl.dot(q_first, tl.trans(k.to(OPERANDS)), input_precision="ieee")
        if FIRST < KEY_DIM:
            k = tl.load(k_rows + rest[None, :], is_key[:, None] & (rest < KEY_DIM)[None, :], other=0.0)
            scores = tl.dot(q_rest, tl.trans(k.to(OPERANDS)), scores, input_precision="ieee")
        scores = _cap(scores, SCALE, SOFTCAP) if SOFTCAP > 0 else scores * (SCALE * LOG2_E)
        is_seen = is_key[None, :] & (keys[None, :] <= positions[:, None])
        if WINDOW > 0:
            is_seen &= keys[None, :] > positions[:, None] - WINDOW
        scores = tl.where(is_seen, scores, float("-inf"))
        now = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(now == float("-inf"), 0.0, now)  # of a row that has seen nothing yet
        factor = tl.exp2(highest - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * factor + tl.sum(weights, 1)
        v_rows = cache + values_at + blocks[:, None] + places[:, None] * VALUE_STRIDE
        v = tl.load(v_rows + dims[None, :], is_key[:, None] & (dims < VALUE_DIM)[None, :], other=0.0)
        weights = weights.to(v.dtype).to(OPERANDS)
        weighted = tl.dot(weights, v.to(OPERANDS), weighted * factor[:, None], input_precision="ieee")
        highest = now

    _write_rows(
        highest, total, weighted, sinks, out, sums, stats, token + queries, place + queries * step, query_heads, is_row,
        dims, place < 0, NUM_KV_HEADS * GROUPS, VALUE_DIM,
    )  # fmt: skip


@triton.jit(do_not_specialize=["at"])
def join_parts(
    sums, stats, sinks, out, plan, at, NUM_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, VALUES: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Join the parts of rows. Grid: some merges at a time, query heads. A merge is: row of `out`; place of its first
    part; number of parts. Of the first PARTS parts, one has seen a key."""
    head = tl.program_id(1)
    num_merges, merges = tl.load(plan + at), plan + tl.load(plan + at + 1)
    for index in range(tl.program_id(0), num_merges, tl.num_programs(0)):
        _join(merges + index * MERGE_FIELDS, head, sums, stats, sinks, out, NUM_HEADS, VALUE_DIM, VALUES, PARTS)


@triton.jit
def _join(
    merge, head, sums, stats, sinks, out, NUM_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, VALUES: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    token, first, count = tl.load(merge).to(tl.int64), tl.load(merge + 1).to(tl.int64), tl.load(merge + 2)
    dims = tl.arange(0, VALUES)
    is_value = dims < VALUE_DIM
    if sinks is not None:
        highest = tl.load(sinks + head).to(tl.float32) * LOG2_E
        total = tl.full((), 1.0, tl.float32)
    else:
        highest = tl.full((), float("-inf"), tl.float32)
        total = tl.full((), 0.0, tl.float32)
    weighted = tl.full((VALUES,), 0.0, tl.float32)
    for start in range(0, count, PARTS):
        parts = start + tl.arange(0, PARTS)
        is_part = parts < count
        places = (first + parts) * NUM_HEADS + head
        maxima = tl.load(stats + places * 2, is_part, other=float("-inf"))
        totals = tl.load(stats + places * 2 + 1, is_part, other=0.0)
        shares = tl.load(
            sums + places[:, None] * VALUE_DIM + dims[None, :], is_part[:, None] & is_value[None, :], other=0.0
        )
        now = tl.maximum(highest, tl.max(maxima, 0))
        factor = tl.exp2(highest - now)
        weights = tl.exp2(maxima - now)
        total = total * factor + tl.sum(weights * totals, 0)
        weighted = weighted * factor + tl.sum(weights[:, None] * shares, 0)
        highest = now
    tl.store(out + (token * NUM_HEADS + head) * VALUE_DIM + dims, (weighted / total).to(out.dtype.element_ty), is_value)
