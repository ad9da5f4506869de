"""Declare the structures of `csrc` with lines of C, and find the addresses in them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_TYPES: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "float": ctypes.c_float,
}
_Pointer = ctypes.c_void_p


def structure(c_name: str, *lines: str) -> type[ctypes.Structure]:
    """Declare a structure of `csrc` by its name there, and its lines in order, such as "int64 num_rows size"."""

    class Declared(ctypes.Structure):
        _fields_ = [(name, _TYPES[kind]) for kind, *names in map(str.split, lines) for name in names]

    Declared.__name__ = Declared.__qualname__ = c_name
    return Declared


def address(x: np.ndarray) -> int:
    """Return an array's address for a kernel. In numpy's ABI it follows the object's head; `x.ctypes.data` takes eight
    times as long, which was 4 to 9 % of a small model's prompt."""
    assert isinstance(x, np.ndarray)
    return _Pointer.from_address(id(x) + object.__basicsize__).value or 0


def dense(x: np.ndarray) -> np.ndarray:
    """Return a C-contiguous array, itself if it is one."""
    return x if x.flags.c_contiguous else x.copy()


def dense_rows(x: np.ndarray) -> np.ndarray:
    """Return an array whose last dimension is contiguous, itself if its is."""
    return x if x.strides[-1] == x.itemsize or x.shape[-1] == 1 else x.copy()
