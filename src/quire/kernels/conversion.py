"""Conversions of floats, and tests for NaN and infinity, by csrc/elementwise.h. They take unchecked addresses."""

from __future__ import annotations

import ctypes
import functools
import os

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import call_kernel
from quire.kernels.structure import structure

#: By their numbers there. Nothing converts to the last.
DTYPES = ("float32", "bfloat16", "float16", "float64")
_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}

_Convert = structure("QuireConvert", "pointer x out", "int64 size", "int32 from to num_threads")  # csrc/elementwise.h


class Conversions:
    """The conversions of one level's library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._convert, self._is_finite = library["quire_convert"], library["quire_is_finite"]
        self._convert.argtypes, self._convert.restype = (ctypes.c_void_p,), None
        self._is_finite.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32)
        self._is_finite.restype = ctypes.c_int32

    def convert(self, x: int, dtype: str, out: int, to: str, size: int, num_threads: int) -> None:
        self._convert(ctypes.byref(_Convert(x, out, size, _NUMBERS[dtype], _NUMBERS[to], num_threads)))

    def widen(self, x: int, dtype: str, out: int, size: int, num_threads: int) -> None:
        """Convert to float32, as part of a pass."""
        call_kernel(self._convert, _Convert(x, out, size, _NUMBERS[dtype], 0, num_threads))

    def is_finite(self, x: int, dtype: str, size: int, num_threads: int) -> bool:
        return bool(self._is_finite(x, size, _NUMBERS[dtype], num_threads))


def conversions() -> Conversions | None:
    """Return this process's functions, or None. Raises ValueError as `load_kernels`."""
    return _conversions(os.environ.get("QUIRE_KERNELS"))


@functools.cache
def _conversions(level: str | None) -> Conversions | None:
    functions = load_kernels().functions
    return None if functions is None else Conversions(functions)
