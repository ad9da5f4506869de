"""Activations, sums, products and layer norms on numpy arrays, against float64, at every level of this processor."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from kernel_levels import each_level, library_of
from quire.kernels.elementwise import MAPS, Elementwise

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
#: Units in the last place. The argument of gelu_tanh is rounded, which its tail multiplies.
MAX_ULP = {"silu": 4, "relu": 0, "gelu": 6, "gelu_tanh": 3}
each_dtype = pytest.mark.parametrize("dtype", DTYPES)

_ERF = np.vectorize(math.erfc)
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * _ERF(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def map_with(
    kernels: Elementwise, name: str, x: np.ndarray, y: np.ndarray | None = None, threads: int = 1
) -> np.ndarray:
    out = np.full_like(x, 7)
    kernels.run(name, x.ctypes.data, None if y is None else y.ctypes.data, out.ctypes.data, x.size, 1.5, threads)
    return out


def samples() -> np.ndarray:
    spread = np.concatenate((np.linspace(-20, 20, 40_001), np.logspace(-37, 1.9, 4001), -np.logspace(-37, 1.3, 4001)))
    return np.random.default_rng(0).permutation(spread).astype(np.float32)


def ulps(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the errors of float32 in units in the last place, of normal numbers."""
    unit = np.spacing(np.maximum(np.abs(expected), 1e-36).astype(np.float32))
    return np.abs(found.astype(np.float64) - expected) / unit


@each_level
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_right_to_a_few_units_in_the_last_place(level: str, name: str) -> None:
    kernels = Elementwise(library_of(level), "float32")
    x = samples()
    errors = ulps(map_with(kernels, name, x), ACTIVATIONS[name](x.astype(np.float64)))
    if name == "gelu_tanh":  # the error of e^z is |z| times that of z
        errors /= 1 + 2 * np.maximum(-x, 0) ** 3 / 2
    assert errors.max() <= MAX_ULP[name]


@each_level
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_bfloat16_are_rounded_once(level: str, name: str) -> None:
    library = library_of(level)
    x = samples().astype(DTYPES["bfloat16"])
    wide = map_with(Elementwise(library, "float32"), name, x.astype(np.float32))
    np.testing.assert_array_equal(map_with(Elementwise(library, "bfloat16"), name, x), wide.astype(x.dtype))


@each_level
@each_dtype
def test_special_values_pass_as_in_torch(level: str, dtype: str) -> None:
    kernels = Elementwise(library_of(level), dtype)
    x = np.array([np.nan, np.inf, -0.0, 1e30, -1e30, 3e-39], DTYPES[dtype])
    for name in ACTIVATIONS:
        found = map_with(kernels, name, x).astype(np.float32)
        assert np.isnan(found[0])
        assert found[1] == np.inf
        assert found[2] == 0
        assert found[3] == x[3].astype(np.float32)
        assert found[4] == 0
        assert 0 <= found[5] <= 3.1e-39


@each_level
@each_dtype
@pytest.mark.parametrize("name", MAPS)
def test_an_element_has_the_same_bits_at_every_position(level: str, dtype: str, name: str) -> None:
    kernels = Elementwise(library_of(level), dtype)
    x, y = (samples()[:40_000].astype(DTYPES[dtype]) for _ in range(2))
    y = y[::-1].copy()
    whole = map_with(kernels, name, x, y)
    np.testing.assert_array_equal(whole, map_with(kernels, name, x, y, threads=3))
    for start, size in ((1, 1), (3, 5), (17, 15), (16384 - 1, 33), (5, 0), (2, 20_001)):
        part = slice(start, start + size)
        np.testing.assert_array_equal(map_with(kernels, name, x[part], y[part]), whole[part])
    kernels.run(name, x.ctypes.data, y.ctypes.data, x.ctypes.data, x.size, 1.5, 1)
    np.testing.assert_array_equal(x, whole)


@each_level
@each_dtype
def test_sums_and_products_are_rounded_to_nearest_even(level: str, dtype: str) -> None:
    kernels = Elementwise(library_of(level), dtype)
    x = samples().astype(DTYPES[dtype])
    x[:3] = np.nan, np.inf, -np.inf
    y = np.roll(x, 1)
    wide, other = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = {"add": (wide + other).astype(x.dtype), "multiply": (wide * other).astype(x.dtype)}
        expected["scale"] = (wide * np.float32(1.5)).astype(x.dtype)
    for name, each in expected.items():
        np.testing.assert_array_equal(map_with(kernels, name, x, y).astype(np.float32), each.astype(np.float32))


@each_level
@each_dtype
def test_soft_caps_are_close_to_tanh(level: str, dtype: str) -> None:
    x = samples().astype(DTYPES[dtype])
    found = map_with(Elementwise(library_of(level), dtype), "cap", x).astype(np.float64)
    error = 1e-6 if dtype == "float32" else 2**-8
    np.testing.assert_allclose(found, 1.5 * np.tanh(x.astype(np.float64) / 1.5), rtol=error, atol=error)


@each_level
@each_dtype
@pytest.mark.parametrize("shape", [(1, 768), (7, 77), (300, 5), (0, 64), (2, 1)])
@pytest.mark.parametrize("is_affine", [True, False])
def test_layer_norms_and_the_sums_before_them(level: str, dtype: str, shape: tuple[int, int], is_affine: bool) -> None:
    kernels = Elementwise(library_of(level), dtype)
    random = np.random.default_rng(0)
    x, y = (random.normal(3, 5, shape).astype(DTYPES[dtype]) for _ in range(2))
    weight, bias = (random.normal(size=shape[1]).astype(DTYPES[dtype]) for _ in range(2))
    total = (x.astype(np.float32) + y.astype(np.float32)).astype(x.dtype)

    def norm(x: np.ndarray | None, y: np.ndarray, threads: int = 1) -> np.ndarray:
        out = np.full_like(y, 7)
        affine = (weight.ctypes.data, bias.ctypes.data) if is_affine else (None, None)
        addend = None if x is None else x.ctypes.data
        kernels.run("layer_norm", addend, y.ctypes.data, *affine, out.ctypes.data, *y.shape, 1e-5, threads)
        return out

    normed = norm(x, y)
    np.testing.assert_array_equal(y, total)
    if not len(x):
        return
    np.testing.assert_array_equal(normed, norm(None, total))
    np.testing.assert_array_equal(normed, norm(None, total, threads=3))
    np.testing.assert_array_equal(normed[-1:], norm(None, total[-1:].copy()), "a neighbour changed it")
    exact = exact_layer_norm(total)
    if is_affine:
        exact = exact * weight.astype(np.float64) + bias.astype(np.float64)
    tolerance = 1e-6 if dtype == "float32" else 2**-8
    assert np.abs(normed - exact).max() <= tolerance * max(1, np.abs(exact).max())


def exact_layer_norm(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5))


@each_level
def test_layer_norms_of_values_far_from_zero_stay_accurate(level: str) -> None:
    kernels = Elementwise(library_of(level), "float32")
    x = np.random.default_rng(0).normal(1000, 1, (4, 4096)).astype(np.float32)
    out = np.empty_like(x)
    kernels.run("layer_norm", None, x.ctypes.data, None, None, out.ctypes.data, *x.shape, 1e-5, 1)
    assert np.abs(out - exact_layer_norm(x)).max() <= 2e-6
    x[2, 5] = np.nan
    kernels.run("layer_norm", None, x.ctypes.data, None, None, out.ctypes.data, *x.shape, 1e-5, 1)
    assert np.isnan(out[2]).all()
    assert np.isfinite(out[[0, 1, 3]]).all()
