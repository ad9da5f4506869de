"""Draw tokens: a program draws one token of a row, in passes over tiles of the row.

Weights, exp((logit - top) / temperature) in float32, are summed as integers, in units of 2^-42: two million tokens fit
in 63 bits. Sums of integers depend on no order, and their inversion at a random number rounds nothing. See
`runner.drawing` for top_p, and `runner.random` for the numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

DRAW_FIELDS = tl.constexpr(7)
ONE = tl.constexpr(2.0**42)  # units of the largest weight
MOST_DRAWS = tl.constexpr(100)  # a usual row takes less than five
LOWEST = tl.constexpr(-2139095041)  # the key of minus infinity


@triton.jit
def _mix(z):
    """See `runner.random`."""
    z += 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _value(key):
    """Return the float32 of a key; keys are integers in the order of their numbers."""
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _logits(row, words, tile, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Return the logits of a tile, and the same with minus infinity for banned tokens."""
    tokens = tile * TILE + tl.arange(0, TILE)
    logits = tl.load(row + tokens, tokens < SIZE, other=float("-inf")).to(tl.float32)
    allowed = logits
    if words is not None:
        bits = tl.load(words + (tokens >> 5), tokens < SIZE, other=0) >> (tokens & 31)
        allowed = tl.where((bits & 1) != 0, logits, float("-inf"))
    return logits, allowed


@triton.jit
def _weights(row, words, tile, top, scale, floor, pivot, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Return the weights of a tile, and in units those of tokens from `floor` on that weigh more than `pivot`."""
    _, logits = _logits(row, words, tile, SIZE, TILE)
    weights = tl.exp((logits - top) * scale)
    is_candidate = (logits >= floor) & (weights > pivot)
    return weights, tl.where(is_candidate, weights * ONE, 0.0).to(tl.int64)


@triton.jit
def _sums(row, words, top, scale, floor, pivot, SIZE: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr):
    """Return the sum of each tile's units."""
    tiles = tl.arange(0, TILES)
    sums = tl.zeros((TILES,), tl.int64)
    for tile in range((SIZE + TILE - 1) // TILE):
        _, units = _weights(row, words, tile, top, scale, floor, pivot, SIZE, TILE)
        sums = tl.where(tiles == tile, tl.sum(units), sums)
    return sums


@triton.jit
def _count(row, words, least, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Return the number of logits from `least` on."""
    counts = tl.zeros((TILE,), tl.int32)
    for tile in range((SIZE + TILE - 1) // TILE):
        _, logits = _logits(row, words, tile, SIZE, TILE)
        counts += (logits >= least).to(tl.int32)
    return tl.sum(counts)


@triton.jit
def _cut(row, words, maxima, top, top_k, SIZE: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr):
    """Return a number from which on there are the `top_k` largest logits, and those equal to the last of them. It is
    searched from the kth largest of `maxima` on, which has few larger ones. STEP is the least distance of two keys."""
    low = tl.full((), LOWEST, tl.int64)
    bits = top.to(tl.int32, bitcast=True)
    end = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) + 1
    high = end
    while high - low > STEP:
        middle = (low + high) >> 1
        is_low = tl.sum((maxima >= _value(middle)).to(tl.int32)) >= top_k
        low = tl.where(is_low, middle, low)
        high = tl.where(is_low, high, middle)
    high = end
    count = _count(row, words, _value(low), SIZE, TILE)
    while (count > top_k) & (high - low > STEP):
        middle = (low + high) >> 1
        found = _count(row, words, _value(middle), SIZE, TILE)
        low = tl.where(found >= top_k, middle, low)
        count = tl.where(found >= top_k, found, count)
        high = tl.where(found >= top_k, high, middle)
    return _value(low)


@triton.jit
def _draw(row, words, top, scale, floor, share, address, SIZE: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr):
    """Return a token drawn from those with logits from `floor` on, and from their nucleus if `share` is less."""
    tiles, places = tl.arange(0, TILES), tl.arange(0, TILE)
    pivot = tl.full((), -1.0, tl.float32)
    sums = _sums(row, words, top, scale, floor, pivot, SIZE, TILE, TILES)
    total = tl.sum(sums)
    limit = tl.umulhi(share, total.to(tl.uint64)).to(tl.int64)
    draw = tl.full((), 0, tl.int64)
    token = tl.full((), -1, tl.int32)
    while (token < 0) & (draw < MOST_DRAWS):
        number = _mix(address ^ draw.to(tl.uint64)) & 0xFFFFFFFFFFFFF800
        target = tl.umulhi(number, total.to(tl.uint64)).to(tl.int64)
        tile = tl.sum((tl.cumsum(sums) <= target).to(tl.int32))
        target -= tl.sum(tl.where(tiles < tile, sums, 0))
        weights, units = _weights(row, words, tile, top, scale, floor, pivot, SIZE, TILE)
        place = tl.sum((tl.cumsum(units) <= target).to(tl.int32))
        drawn = tile * TILE + place
        if share == 0xFFFFFFFFFFFFFFFF:
            token = drawn
        else:
            pivot = tl.sum(tl.where(places == place, weights, 0.0))
            sums = _sums(row, words, top, scale, floor, pivot, SIZE, TILE, TILES)
            total = tl.sum(sums)
            token = tl.where(total <= limit, drawn, -1)
        draw += 1
    return token


@triton.jit
def draw_tokens(
    logits, masks, draws, tokens, row_stride,
    SIZE: tl.constexpr, WORDS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Draw a token of [..., SIZE] logits, or find the largest; -1 if the row is not numbers, or all are banned. TILES
    is the number of tiles rounded up to a power of two. Grid: draws. A draw is int64: row of `logits`; row of `masks`,
    [..., WORDS] with a bit per allowed token; top_k, 0 for none; 2^64 top_p - 1, rounded up; address of its random
    numbers; and as float64: 1 / temperature, 0 for the largest; log(min_p) temperature."""
    place = tl.program_id(0)
    draw = draws + place * DRAW_FIELDS
    row = logits + tl.load(draw) * row_stride
    words = masks
    if masks is not None:
        words = masks + tl.load(draw + 1) * WORDS
    top_k = tl.load(draw + 2)
    share, address = tl.load(draw + 3).to(tl.uint64), tl.load(draw + 4).to(tl.uint64)
    scale = tl.load(draw + 5).to(tl.float64, bitcast=True).to(tl.float32)
    distance = tl.load(draw + 6).to(tl.float64, bitcast=True).to(tl.float32)

    maxima = tl.full((TILE,), float("-inf"), tl.float32)
    found = tl.zeros((TILE,), tl.int32)
    is_broken = tl.zeros((TILE,), tl.int32)
    for tile in range((SIZE + TILE - 1) // TILE):
        raw, allowed = _logits(row, words, tile, SIZE, TILE)
        is_broken |= ((raw != raw) | (raw == float("inf"))).to(tl.int32)
        found = tl.where(allowed > maxima, tile, found)
        maxima = tl.where(allowed > maxima, allowed, maxima)
    top = tl.max(maxima)
    token = tl.min(tl.where(maxima == top, found * TILE + tl.arange(0, TILE), SIZE))
    if (tl.max(is_broken) > 0) | (top == float("-inf")):
        token = tl.full((), -1, tl.int32)
    elif scale > 0:
        floor = top + distance
        if top_k > 0:
            floor = tl.maximum(floor, _cut(row, words, maxima, top, top_k, SIZE, TILE, STEP))
        token = _draw(row, words, top, scale, floor, share, address, SIZE, TILE, TILES)
    tl.store(tokens + place, token)
