"""Truncated views compute with the top bits of mantissas, while the others arrive."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernel_levels import LEVELS, library_of, needs_kernels
from models.test_compact_weight import normal, with_exceptions
from quire.models.latent_attention import HeadWeights, _Packed
from quire.models.linear import panel_weight
from quire.models.linear.panel_weight import CompactWeight, PanelWeight
from quire.models.linear.truncation import MANTISSA_BITS, PlainWeight, truncation
from quire.ops.arrays import BFLOAT16, as_numpy, as_tensor

Make = Callable[[np.ndarray, ctypes.CDLL], PanelWeight]
KINDS = [(PanelWeight, np.dtype(np.float32)), (PanelWeight, BFLOAT16), (CompactWeight, BFLOAT16)]
each_kind = pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=["float32", "bfloat16", "compact"])
SHAPES = [(33, 130), (7, 3), (96, 1030)]


@pytest.fixture(params=LEVELS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return library_of(request.param)


def weight_of(shape: tuple[int, int], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    if dtype == BFLOAT16:
        return with_exceptions(normal(*shape, seed=seed))
    return (np.random.default_rng(seed).standard_normal(shape) / 50).astype(dtype)


def words(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def masked(weight: np.ndarray, mantissa_bits: int, *, middle: bool = True) -> np.ndarray:
    kept, midpoint = truncation(weight.dtype, mantissa_bits)
    kind = words(weight).dtype.type
    return (words(weight) & kind(kept) | kind(midpoint if middle else 0)).view(weight.dtype)


@each_kind
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_view_multiplies_as_a_weight_of_truncated_words(
    kind: Make, dtype: np.dtype, shape: tuple[int, int], library: ctypes.CDLL
) -> None:
    weight, up = weight_of(shape, dtype), weight_of(shape, dtype, seed=1)
    packed, packed_up = kind(weight.copy(), library), kind(up.copy(), library)
    ids = np.arange(shape[0])
    for bits in (0, 1, 4, MANTISSA_BITS[dtype.name] - 1, MANTISSA_BITS[dtype.name]):
        expected, expected_up = (PanelWeight(masked(each, bits), library) for each in (weight, up))
        view, view_up = packed.truncated(bits), packed_up.truncated(bits)
        assert np.array_equal(words(view.rows(ids)), words(masked(weight, bits)))
        for num_rows in (1, 2, 3, 5, 8, 13, 40, 70):
            x = weight_of((num_rows, shape[1]), dtype, seed=2)
            assert np.array_equal(words(view.product(x, None)), words(expected.product(x, None)))
            found = view.gated_product(x, None, view_up, None)
            assert np.array_equal(words(found), words(expected.gated_product(x, None, expected_up, None)))
    assert np.array_equal(words(packed.rows(ids)), words(weight)), "a view changed the weight"


@each_kind
def test_bits_arrive_in_rows_of_any_number(kind: Make, dtype: np.dtype, library: ctypes.CDLL) -> None:
    weight = weight_of((100, 130), dtype)
    first = masked(weight, 1, middle=False)
    packed, missing = kind(first.copy(), library), words(weight) ^ words(first)
    assert missing.any()
    for start, end in ((0, 3), (40, 100), (3, 33), (33, 40)):
        packed.add_bits(start, missing[start:end])
    assert np.array_equal(words(packed.rows(np.arange(100))), words(weight))
    x = weight_of((2, 130), dtype, seed=2)
    assert np.array_equal(words(packed.product(x, None)), words(PanelWeight(weight, library).product(x, None)))


@each_kind
def test_a_view_does_not_see_bits_that_threads_add(
    kind: Make, dtype: np.dtype, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_weight, "num_threads", lambda: 1)
    weight = weight_of((300, 512), dtype)
    first = masked(weight, 2, middle=False)
    packed, missing = kind(first.copy(), library), words(weight) ^ words(first)
    view, x = packed.truncated(2), weight_of((3, 512), dtype, seed=2)
    expected, rows = words(view.product(x, None)), words(view.rows(np.arange(300)))

    def add(start: int) -> None:
        for row in range(start, 300, 14):  # seven rows at once, so threads share panels
            packed.add_bits(row, missing[row : min(row + 7, 300)])

    threads = [threading.Thread(target=add, args=(start,)) for start in (0, 7)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        assert np.array_equal(words(view.product(x, None)), expected)
        assert np.array_equal(words(view.rows(np.arange(300))), rows)
    for thread in threads:
        thread.join()
    assert np.array_equal(words(packed.rows(np.arange(300))), words(weight)), "bits are lost"
    assert np.array_equal(words(view.product(x, None)), expected)


@pytest.mark.parametrize("is_compact", [False, True])
def test_heads_are_truncated_and_completed(is_compact: bool, library: ctypes.CDLL) -> None:
    heads, nope, value, rank = 3, 48, 40, 96
    weight = normal(heads * (nope + value), rank)
    first = masked(weight, 2, middle=False)

    def pack(rows: np.ndarray) -> _Packed:
        parts = rows.reshape(heads, nope + value, rank)
        both = parts[:, :nope].swapaxes(1, 2), parts[:, nope:]
        return _Packed(HeadWeights(each, library, is_compact=is_compact) for each in both)

    packed, xs = pack(first), (normal(2, heads, nope), normal(2, heads, rank))
    view, expected = packed.truncated(2), pack(masked(weight, 2))
    for start, end in ((50, 200), (0, 50), (200, 264)):
        packed.add_bits(start, (words(weight) ^ words(first))[start:end])
    for part, x in enumerate(xs):
        assert np.array_equal(words(view[part].product(x, 0)), words(expected[part].product(x, 0)))
        assert np.array_equal(words(packed[part].product(x, 0)), words(pack(weight)[part].product(x, 0)))


@pytest.mark.parametrize("is_tensor", [pytest.param(False, marks=needs_kernels), True])
@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float32)], ids=str)
def test_plain_weights_are_the_reference(dtype: np.dtype, is_tensor: bool) -> None:
    weight, x = weight_of((20, 30), dtype), weight_of((4, 30), dtype, seed=2)
    first = masked(weight, 1, middle=False)
    given = as_tensor(first.copy()) if is_tensor else first.copy()
    x, ids = (as_tensor(x), torch.tensor([3, 19])) if is_tensor else (x, np.array([3, 19]))
    plain = PlainWeight(given)
    view, expected = plain.truncated(1), masked(weight, 1)
    plain.add_bits(0, (words(weight) ^ words(first))[:7])
    plain.add_bits(7, (words(weight) ^ words(first))[7:])
    assert np.array_equal(words(as_numpy(view.rows(ids))), words(expected)[[3, 19]])
    assert np.array_equal(words(as_numpy(plain.rows(ids))), words(weight)[[3, 19]])
    for found, words_of in ((view, expected), (plain, weight)):
        other = PlainWeight(as_tensor(words_of) if is_tensor else words_of)
        for activation in ("none", "silu"):
            product, same = found.product(x, None, activation), other.product(x, None, activation)
            assert np.array_equal(words(as_numpy(product)), words(as_numpy(same)))


@each_kind
def test_wrong_bits_are_refused(kind: Make, dtype: np.dtype) -> None:
    packed = kind(weight_of((33, 130), dtype), library_of("generic"))
    size = dtype.itemsize
    for first, shape, kind_of_words in (
        (0, (1, 129), f"u{size}"), (33, (1, 130), f"u{size}"), (-1, (1, 130), f"u{size}"), (0, (1, 130), "u1"),
        (0, (1, 130), f"i{size}"), (0, (130,), f"u{size}"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="are no bits of"):
            packed.add_bits(first, np.zeros(shape, kind_of_words))
    with pytest.raises(ValueError, match="mantissa bits"):
        packed.truncated(MANTISSA_BITS[dtype.name] + 1)
    with pytest.raises(ValueError, match="mantissa bits"):
        packed.truncated(-1)
    if isinstance(packed, CompactWeight):
        with pytest.raises(ValueError, match="mantissas only"):
            packed.add_bits(0, np.full((1, 130), 0x80, np.uint16))
