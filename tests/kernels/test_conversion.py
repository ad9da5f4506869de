"""Conversions of floats against numpy's, for all 65,536 patterns of the short types, at every level."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernel_levels import each_level, library_of
from quire.kernels.conversion import DTYPES, Conversions
from quire.ops.arrays import cast, copy_to, is_finite, numpy_dtype, widen

PAIRS = [(dtype, to) for dtype in DTYPES for to in DTYPES[:-1]]


def convert(kernels: Conversions, x: np.ndarray, to: str, threads: int = 1) -> np.ndarray:
    out = np.empty(x.shape, numpy_dtype(to))
    kernels.convert(x.ctypes.data, x.dtype.name, out.ctypes.data, to, x.size, threads)
    return out


def expect(x: np.ndarray, to: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(np.float32).astype(numpy_dtype(to))


def check(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare bits, so that -0.0 is not 0.0, but let NaN be any NaN."""
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    bits = f"u{found.itemsize}"
    np.testing.assert_array_equal(found.view(bits)[~is_nan], expected.view(bits)[~is_nan])


def samples(dtype: str) -> np.ndarray:
    """Return all patterns of a short type; of others all values of the short types, and ties with neighbours."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    if dtype in ("float16", "bfloat16"):
        return patterns.view(numpy_dtype(dtype))
    with np.errstate(invalid="ignore"):
        tops = patterns.view(np.float16).astype(np.float32)
    words = np.concatenate((tops.view(np.uint32), patterns.astype(np.uint32) << 16))
    near = np.concatenate([words + np.uint32(offset) for offset in (0, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)])
    random = np.random.default_rng(0).integers(0, 1 << 32, 50_000, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        return np.concatenate((near, random)).view(np.float32).astype(dtype)


@each_level
@pytest.mark.parametrize(("dtype", "to"), PAIRS)
def test_conversions_round_to_nearest_even(level: str, dtype: str, to: str) -> None:
    kernels = Conversions(library_of(level))
    x = samples(dtype)
    found = convert(kernels, x, to)
    check(found, expect(x, to))
    check(convert(kernels, x, to, threads=3), found)
    for start, size in ((1, 1), (3, 5), (17, 15), (5, 0), (2, 20_001)):
        part = slice(start, start + size)
        check(convert(kernels, x[part], to), found[part])


@each_level
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 16, 33, 40_001])
def test_one_value_that_is_not_finite_is_found_anywhere(level: str, dtype: str, size: int) -> None:
    kernels = Conversions(library_of(level))

    def found(x: np.ndarray, threads: int = 1) -> bool:
        return kernels.is_finite(x.ctypes.data, dtype, x.size, threads)

    patterns = samples(dtype)
    with np.errstate(invalid="ignore"):
        x = np.resize(patterns[np.isfinite(patterns.astype(np.float64))], size)
    assert found(x)
    assert found(x, threads=3)
    assert found(x[:0])
    for place in {0, size // 2, size - 1}:
        for value in (np.nan, -np.inf):
            bad = x.copy()
            bad[place] = value
            assert not found(bad)
            assert not found(bad, threads=3)
            assert found(bad[:place])


@pytest.mark.parametrize("kernels", ["", "none"])
def test_arrays_of_any_kind_are_converted(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", kernels)
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    x = np.random.default_rng(0).normal(size=(80, 90)).astype(bfloat16)
    for given in (x, x.T, x[::2, 1:], x[:0], x[:2], x[0, 0].reshape(())):
        assert widen(given).dtype == np.float32
        np.testing.assert_array_equal(widen(given), given.astype(np.float32))
        assert is_finite(given)
        for to in (np.float16, np.float64, np.int32, ">f4"):
            np.testing.assert_array_equal(cast(given, np.dtype(to)), given.astype(to))
        view = np.zeros((*given.shape, 2), np.float32)[..., 1]
        copy_to(view, given)
        np.testing.assert_array_equal(view, given.astype(np.float32))
    assert cast(x, bfloat16) is x
    narrow = np.empty(x.shape, bfloat16)
    copy_to(narrow, x.astype(">f4"))
    np.testing.assert_array_equal(narrow, x)
    copy_to(narrow, np.float32(2.5).reshape(1))
    np.testing.assert_array_equal(narrow, np.full_like(x, 2.5))
    narrow.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copy_to(narrow, x.astype(np.float32))
    x[3, 4] = np.inf
    assert not is_finite(x[:, ::2])
    assert not is_finite(x[3])
    assert is_finite(x[:, 1::2])
    assert is_finite(np.arange(5000))
