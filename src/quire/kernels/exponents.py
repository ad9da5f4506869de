"""Split floats into their exponents, one byte each, and their other bits, and join them again."""

from __future__ import annotations

import ctypes
import functools
import os

import numpy as np

from quire.kernels.loaded import load_kernels


def split_exponents(floats: np.ndarray, exponents: np.ndarray, rest: np.ndarray) -> None:
    """Split bfloat16 as uint16, or float32 as uint32. `rest` gets the sign and the top 7 mantissa bits of each in one
    byte, then the lower halves of all float32."""
    if not _call("quire_split_exponents", floats, exponents, rest):
        upper = floats >> 8 * floats.itemsize - 16
        exponents[:] = upper >> 7 & 0xFF
        rest[: floats.size] = upper >> 8 & 0x80 | upper & 0x7F
        if floats.itemsize == 4:
            rest[floats.size :] = floats.astype(np.uint16).view(np.uint8)


def join_exponents(floats: np.ndarray, exponents: np.ndarray, rest: np.ndarray) -> None:
    """The inverse of `split_exponents`, into `floats`."""
    if not _call("quire_join_exponents", floats, exponents, rest):
        top = rest[: floats.size].astype(floats.dtype)
        upper = (top & 0x80) << 8 | exponents.astype(floats.dtype) << 7 | top & 0x7F
        floats[:] = upper << 8 * floats.itemsize - 16
        if floats.itemsize == 4:
            floats |= np.frombuffer(rest[floats.size :].tobytes(), np.uint16)


def _call(name: str, floats: np.ndarray, exponents: np.ndarray, rest: np.ndarray) -> bool:
    """Call a kernel. Returns False if there are none."""
    library = _library(os.environ.get("QUIRE_KERNELS"))
    if library is None:
        return False
    parts = (ctypes.c_void_p(each.ctypes.data) for each in (floats, exponents, rest))
    library[name](*parts, ctypes.c_int64(floats.size), ctypes.c_int32(floats.itemsize))
    return True


@functools.cache
def _library(level: str | None) -> ctypes.CDLL | None:
    return load_kernels().functions
