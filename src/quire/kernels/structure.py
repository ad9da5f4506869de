"""Declare the fields of ctypes structures as lines of a C structure."""

from __future__ import annotations

import ctypes
from typing import Any

_TYPES = {
    "pointer": ctypes.c_void_p,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "int32": ctypes.c_int32,
    "float": ctypes.c_float,
}


def layout(*lines: str) -> list[tuple[str, Any]]:
    """Return `_fields_` from lines such as "int64 num_rows size", in the order of the C structure."""
    return [(name, _TYPES[kind]) for kind, *names in map(str.split, lines) for name in names]
