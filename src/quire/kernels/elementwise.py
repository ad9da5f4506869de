"""The functions of `csrc/elementwise.h`, of one dtype. They take addresses: whoever calls knows what lies there."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from quire.kernels.loaded import load_kernels

#: By the names that torch's dtypes have.
DTYPES = ("float32", "bfloat16")
_SERIAL_ELEMENTS = 2**17  # up to this many, waking another thread takes longer than it helps

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


class Elementwise:
    """See csrc/elementwise.h for what each function does.

    Args:
        library: of a level.
        dtype: one of `DTYPES`.
    """

    def __init__(self, library: ctypes.CDLL, dtype: str) -> None:
        rows, last = (_INT, _INT), (ctypes.c_float, ctypes.c_int32)
        #: norm(x or None, y, weight, out, num_rows, size, eps, num_threads)
        self.norm = _typed(library, f"quire_norm_{dtype}", *4 * [_POINTER], *rows, *last)
        #: rotate(heads, num_tokens, stride, num_query_heads, num_key_heads, head_dim, cosines, sines,
        #: query_weight or None, key_weight or None, eps, num_threads)
        self.rotate = _typed(library, f"quire_rotate_{dtype}", _POINTER, *5 * [_INT], *4 * [_POINTER], *last)
        #: best(rows, num_rows, size, stride, values, places, num_threads)
        self.best = _typed(library, f"quire_best_{dtype}", _POINTER, *rows, _INT, _POINTER, _POINTER, ctypes.c_int32)


def _typed(library: ctypes.CDLL, name: str, *types: Any) -> Any:
    function = library[name]  # an object of our own: its types are
    function.argtypes, function.restype = types, None
    return function


def elementwise(dtype: str) -> Elementwise | None:
    """The functions of the level that this process uses, or None: there are none for the dtype.

    Raises:
        ValueError: see `load_kernels`.
    """
    return _elementwise(dtype, os.environ.get("QUIRE_KERNELS"))


@functools.cache
def _elementwise(dtype: str, level: str | None) -> Elementwise | None:
    functions = load_kernels().functions
    return None if functions is None or dtype not in DTYPES else Elementwise(functions, dtype)


def threads_for(num_elements: int, num_threads: int) -> int:
    """How many of so many threads are worth waking."""
    return num_threads if num_elements > _SERIAL_ELEMENTS else 1
