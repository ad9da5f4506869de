"""Products with weights as they lie in memory, decoded in registers, for linear layers and experts. x keeps its dtype;
sums are float32.

A row of a weight is an output feature. A weight is a tuple of arrays: numbers, scales, factors, table, and exceptions.
FORM, (BITS, GROUP, ZERO, HAS_LOWS, SPREAD, IS_FLOAT), says what they hold:
- 0 bits: `numbers` are plain, in any dtype. The other arrays are None.
- 8 bits without groups: bytes, and `scales` of rows, float32 [width].
- 8 or 4 bits: GROUP inputs have a scale, and maybe a low: a weight is (integer - ZERO) * scale + low. `scales`,
  [groups / SPREAD, 1 or 2, width], are multiplied by `factors`, int8 [groups, 1 or 2, width], if there are any.
  Integers of 4 bits may be places in `table`, int8 [16]. With IS_FLOAT, bits are those of a float: 8 of e4m3, times
  2**-8, or 4 of e2m1, times 2**-14.
- 12 bits: a bfloat16 is its lower byte, in `table`, [width, depth], and 4 bits: its sign, and by how much the upper 7
  bits of its exponent exceed `scales`, int16 [width]; 0 means a weight of zero. Others are exceptions: `starts`, int32
  [width + 1], of a row's `places`, int32, and `values`.
The lower halves of GROUP bytes hold 4 bits of each input of a group, their upper halves those of the next group.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_products(
    total, weight, columns, is_column, width, row_size, start, end, x_rows, is_row, depth,
    FORM: tl.constexpr, STEP: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Add x W^T of the numbers from `start` to `end` of rows to float32 [COLUMNS, ROWS], STEP bytes at a time, or
    weights if they are plain. OPERANDS is the dtype of products."""
    HALVES: tl.constexpr = 2 if FORM[0] == 4 or FORM[0] == 12 else 1
    for at in range(start, end, STEP):
        numbers = load_numbers(weight, columns, is_column, row_size, at, end, FORM, STEP)
        for half in tl.static_range(HALVES):
            inputs, part = decode(weight, numbers, columns, is_column, width, row_size, at, half, FORM, STEP)
            x = tl.load(x_rows + inputs[:, None], is_row & (inputs < depth)[:, None], other=0.0).to(OPERANDS)
            total = tl.dot(part.to(OPERANDS), x, total, input_precision="ieee")
    return total


@triton.jit
def load_numbers(weight, columns, is_column, row_size, at, end, FORM: tl.constexpr, STEP: tl.constexpr):
    """Return STEP numbers of rows from `at` on, [COLUMNS, STEP]."""
    numbers, _, _, _, _, _, _ = weight
    steps = at + tl.arange(0, STEP)
    is_number = is_column[:, None]
    if FORM[0] == 0:
        is_number = is_number & (steps < end)[None, :]
    return tl.load(numbers + columns.to(tl.int64)[:, None] * row_size + steps[None, :], is_number, other=0)


@triton.jit
def decode(
    weight, numbers, columns, is_column, width, row_size, at, half: tl.constexpr, FORM: tl.constexpr, STEP: tl.constexpr
):  # fmt: skip
    """Return the inputs, [STEP], and weights, [COLUMNS, STEP], of what `load_numbers` has returned, or of halves of
    bytes. Bytes without groups are not scaled."""
    _, scales, factors, table, _, _, _ = weight
    GROUP: tl.constexpr = FORM[1]
    inputs = at + tl.arange(0, STEP)
    if GROUP == 0:
        part = numbers
    elif FORM[0] == 8:
        part = _decode(numbers, scales, factors, table, at // GROUP, columns, is_column, width, STEP, FORM)
    else:
        inputs += (at // GROUP + half) * GROUP
        numbers = (numbers >> 4 * half) & 15
        if FORM[0] == 4:
            group = at // GROUP * 2 + half
            part = _decode(numbers, scales, factors, table, group, columns, is_column, width, STEP, FORM)
        else:
            lower = table + columns.to(tl.int64)[:, None] * (2 * row_size) + inputs[None, :]
            part = _join_bytes(numbers, tl.load(lower, is_column[:, None], other=0), scales, columns, is_column)
    return inputs, part


@triton.jit
def finish_products(total, weight, bias, columns, is_column, x_rows, is_row, FORM: tl.constexpr):
    """Scale the rows of a weight, and add what exceptions contribute, and the bias."""
    _, scales, _, _, starts, places, values = weight
    if FORM[0] == 8 and FORM[1] == 0:
        total *= tl.load(scales + columns, is_column, other=0.0)[:, None]
    if starts is not None:
        first = tl.load(starts + columns, is_column, other=0)
        count = tl.load(starts + columns + 1, is_column, other=0) - first
        for number in range(tl.max(count)):
            is_one = number < count
            place = tl.load(places + first + number, is_one, other=0)[:, None]
            value = tl.load(values + first + number, is_one, other=0.0)[:, None].to(tl.float32)
            total += value * tl.load(x_rows + place, is_row & is_one[:, None], other=0.0).to(tl.float32)
    if bias is not None:
        total += tl.load(bias + columns, is_column, other=0.0).to(tl.float32)[:, None]
    return total


@triton.jit
def _decode(
    integers, scales, factors, table, group, columns, is_column, width, STEP: tl.constexpr, FORM: tl.constexpr
):  # fmt: skip
    """Return weights of a group, or of several from `group` on, float32 [COLUMNS, STEP]."""
    ZERO: tl.constexpr = FORM[2]
    HAS_LOWS: tl.constexpr = FORM[3]
    KINDS: tl.constexpr = 2 if HAS_LOWS else 1
    GROUPS: tl.constexpr = STEP // FORM[1] if FORM[1] < STEP else 1
    groups, columns, is_column = group + tl.arange(0, GROUPS)[None, :], columns[:, None], is_column[:, None]
    at = groups // FORM[4] * KINDS * width + columns
    scale = tl.load(scales + at, is_column, other=0.0).to(tl.float32)
    if HAS_LOWS:
        low = tl.load(scales + at + width, is_column, other=0.0).to(tl.float32)
    if factors is not None:
        at = groups * KINDS * width + columns
        scale *= tl.load(factors + at, is_column, other=0).to(tl.float32)
        if HAS_LOWS:
            low *= tl.load(factors + at + width, is_column, other=0).to(tl.float32)
    if table is not None:
        found = tl.load(table + integers.to(tl.int32)).to(tl.float32)
    elif FORM[5]:  # as a float16 with the same bits of exponent and mantissa
        SIGN: tl.constexpr = 128 if FORM[0] == 8 else 8
        bits = integers.to(tl.int16)
        bits = ((bits & SIGN) * (32768 // SIGN)) | ((bits & (SIGN - 1)) << (7 if FORM[0] == 8 else 9))
        found = bits.to(tl.float16, bitcast=True).to(tl.float32)
    elif FORM[0] == 8:
        found = integers.to(tl.float32)
    else:  # faster than a conversion
        found = (integers.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True) - (8388608.0 + ZERO)
    shape: tl.constexpr = (columns.shape[0], GROUPS, STEP // GROUPS)
    found = tl.reshape(found, shape) * scale[:, :, None]
    if HAS_LOWS:
        found += low[:, :, None]
    return tl.reshape(found, (columns.shape[0], STEP))


@triton.jit
def _join_bytes(codes, lower, scales, columns, is_column):
    """Return weights of 12 bits, bfloat16 [COLUMNS, STEP]."""
    base = tl.load(scales + columns, is_column, other=0)[:, None]
    codes = codes.to(tl.int16)
    words = ((codes & 8) << 12) | ((base + (codes & 7)) << 8) | (lower.to(tl.int16) & 255)
    return tl.where((codes & 7) == 0, 0, words).to(tl.bfloat16, bitcast=True)
