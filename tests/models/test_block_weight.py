"""Weights in blocks: decoded as the gguf package does, exact integers in every kernel, and independent rows."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from encoded_rows import decoded_integers, encode_integers, random_rows
from kernel_levels import each_level, library_of
from quire.models.linear import block_weight
from quire.models.linear.block_weight import TYPES, BlockRows, BlockWeight
from quire.ops.arrays import BFLOAT16, FLOAT32

GGUF_TYPES = [name for name in TYPES if not name.startswith("INT")]
each_type = pytest.mark.parametrize("name", GGUF_TYPES)
DEPTH = 512


def pack(level: str, parts: list[tuple[str, np.ndarray]], depth: int = DEPTH) -> BlockWeight:
    return BlockWeight([BlockRows(*part) for part in parts], depth, FLOAT32, library_of(level))


def dequantized(name: str, rows: np.ndarray) -> np.ndarray:
    return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers of activations by the definition, [rows, units, 32], and their scales, [rows, units, 1]."""
    units = x.reshape(len(x), -1, 32)
    largest = np.abs(units).max(axis=-1, keepdims=True)
    return np.rint(units * (np.float32(127) / largest)), largest / np.float32(127)


@each_level
@each_type
def test_rows_decode_to_the_bits_of_gguf(level: str, name: str) -> None:
    rows = random_rows(name, 77, DEPTH)
    weight = pack(level, [(name, rows)])
    ids = np.array([0, 76, 33, 33, *range(77)])
    expected = dequantized(name, rows)[ids]
    assert weight.rows(ids).tobytes() == expected.tobytes()
    as_bfloat16 = BlockWeight([BlockRows(name, rows)], DEPTH, BFLOAT16, library_of(level))
    assert as_bfloat16.rows(ids).tobytes() == expected.astype(BFLOAT16).tobytes()
    with pytest.raises(IndexError, match="77 rows"):
        weight.rows(np.array([77]))
    assert pack(level, [(name, rows[:64])]).num_bytes <= 1.03 * rows[:64].nbytes


@each_level
@each_type
def test_products_are_those_of_integers(level: str, name: str) -> None:
    rows, up_rows, bias = random_rows(name, 77, DEPTH), random_rows("Q8_0", 77, DEPTH, seed=1), numbers(77)
    weight, up = pack(level, [(name, rows)]), pack(level, [("Q8_0", up_rows)])
    x = numbers(13, DEPTH + 3)[:, :DEPTH]  # rows lie apart
    integers, scales = quantized(np.ascontiguousarray(x))
    exact_x = (integers * scales.astype(np.float64)).reshape(x.shape)
    y, z = (exact_x @ dequantized(*each).T.astype(np.float64) for each in ((name, rows), ("Q8_0", up_rows)))
    tolerance = {"rtol": 1e-5, "atol": 3e-6 * float(np.abs(y).max())}
    np.testing.assert_allclose(weight.product(x, bias), y + bias, **tolerance)
    for activation, function in (("silu", F.silu), ("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"))):
        gate = function(torch.from_numpy(y + bias)).numpy()
        np.testing.assert_allclose(weight.product(x, bias, activation), gate, **tolerance)
        gated = weight.gated_product(x, bias, up, None, activation)
        np.testing.assert_allclose(gated, gate * z, rtol=1e-5, atol=1e-5 * float(np.abs(gate * z).max()))
    narrow = weight.product(x.astype(BFLOAT16), bias.astype(BFLOAT16)).astype(np.float64)
    np.testing.assert_allclose(narrow, x @ dequantized(name, rows).T + bias, atol=0.03 * np.abs(y).max(), rtol=0.03)


@each_level
def test_floats_are_summed_in_the_order_of_depth(level: str) -> None:
    """Bit by bit as this definition: with fused sums where the processor has them."""
    rows, x = random_rows("Q4_0", 40, DEPTH), numbers(7, DEPTH)
    units = rows.reshape(40, -1, 18)
    weights = np.concatenate((units[..., 2:] & 15, units[..., 2:] >> 4), axis=-1).astype(np.float32) - 8
    weight_scales = np.ascontiguousarray(units[..., :2]).view(np.float16)[..., 0].astype(np.float32)
    integers, scales = quantized(x)
    total = np.zeros((7, 40), np.float32)
    for unit in range(DEPTH // 32):
        sums = (integers[:, unit] @ weights[:, unit].T).astype(np.float32)
        factors = weight_scales[:, unit] * scales[:, unit]
        if level == "generic":
            total = sums * factors + total
        else:  # exact products in float64
            total = (sums * factors.astype(np.float64) + total).astype(np.float32)
    assert pack(level, [("Q4_0", rows)]).product(x, None).tobytes() == total.tobytes()


@each_level
@each_type
def test_neither_rows_nor_threads_nor_parts_change_a_bit(
    level: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [(name, random_rows(name, 45, DEPTH)), ("Q6_K", random_rows("Q6_K", 3, DEPTH)),
             ("Q8_0", random_rows("Q8_0", 1100, DEPTH))]  # fmt: skip
    x, bias = numbers(45, DEPTH), numbers(1148)
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(block_weight, "num_threads", lambda threads=threads: threads)
        whole = pack(level, parts)
        results.append(whole.product(x, bias))
    assert all(each.tobytes() == results[0].tobytes() for each in results)
    for count in (1, 2, 3, 5, 6, 7, 12, 13):
        assert whole.product(x[:count], bias).tobytes() == results[0][:count].tobytes()
        assert whole.product(x[-count:], bias).tobytes() == results[0][-count:].tobytes()
    first = 0
    for part in parts:
        columns = slice(first, first := first + len(part[1]))
        alone = pack(level, [part]).product(x, np.ascontiguousarray(bias[columns]))
        np.testing.assert_array_equal(alone, results[0][:, columns])
        np.testing.assert_array_equal(whole.rows(np.arange(columns.start, columns.stop)), dequantized(*part))
    assert whole.product(x[:0], bias).shape == (0, 1148)


@each_level
@pytest.mark.parametrize("group", [32, 64, 128, 224])
@pytest.mark.parametrize("bits", [4, 8])
def test_integers_of_other_checkpoints(level: str, bits: int, group: int) -> None:
    depth, random = 5 * group // 2 // 4 * 4, np.random.default_rng(group)  # the last group is not whole
    scales = random.standard_normal((50, -(-depth // group))).astype(np.float16).astype(np.float32)
    zeros = random.integers(0, 16, scales.shape, np.uint8)
    integers = random.integers(0, 2**bits, (50, depth), np.uint8)
    order = random.permutation(depth).astype(np.int32)
    part = BlockRows(f"INT{bits}", encode_integers(integers, scales, zeros, group), group, order)
    weight = BlockWeight([part], depth, FLOAT32, library_of(level))
    values = decoded_integers(integers, scales, zeros if bits == 4 else np.full_like(zeros, 128), group)
    np.testing.assert_array_equal(weight.rows(np.arange(50)), values.astype(np.float32))
    x = numbers(9, depth)
    padded = np.zeros((9, -(-depth // 32) * 32), np.float32)
    padded[:, :depth] = x[:, order]
    exact, exact_scales = quantized(padded)
    expected = (exact * exact_scales.astype(np.float64)).reshape(9, -1)[:, :depth] @ values.T
    np.testing.assert_allclose(weight.product(x, None), expected, rtol=1e-5, atol=3e-6 * np.abs(expected).max())


@each_level
def test_nan_is_not_hidden(level: str) -> None:
    weight, x = pack(level, [("Q4_K", random_rows("Q4_K", 33, DEPTH))]), numbers(3, DEPTH)
    x[1, 7], x[2, 60] = np.nan, np.inf
    assert np.isnan(weight.product(x, None)).all(axis=1).tolist() == [False, True, True]
