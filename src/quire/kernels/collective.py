"""Sums and gathering among ranks through shared memory; see `csrc/collective.h`."""

from __future__ import annotations

import ctypes
from typing import Any

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.structure import structure

PART_BYTES = 1 << 18  #: size of a buffer, enough for a step of a few sequences
_LINE = 64

_CollectiveCall = structure(
    "QuireCollective",
    "pointer memory",
    "int64 part_bytes",
    "int32 rank size",
    "uint64 num_parts",
    "int64 done",
    "int32 is_put wait_us",
)  # csrc/collective.h


class Collective:
    """One rank's side, at the address `memory` of `bytes_for(size)` zeroed bytes. The functions take addresses, wait up
    to `wait_s`, and return whether the operation is complete."""

    def __init__(self, library: ctypes.CDLL, memory: int, rank: int, size: int, wait_s: float) -> None:
        self._call = _CollectiveCall(memory, PART_BYTES, rank, size, 0, 0, 0, int(wait_s * 1e6))
        self._pointer = ctypes.pointer(self._call)
        self._sums = {dtype: self._typed(library, f"quire_all_reduce_{dtype}", 1, 1) for dtype in DTYPES}
        self._gather = self._typed(library, "quire_all_gather", 2, 2)

    @staticmethod
    def bytes_for(size: int) -> int:
        return size * (_LINE + 2 * PART_BYTES)

    @staticmethod
    def _typed(library: ctypes.CDLL, name: str, num_pointers: int, num_sizes: int) -> Any:
        function = library[name]  # a new object, so its types are our own
        pointers, sizes = [ctypes.c_void_p] * num_pointers, [ctypes.c_int64] * num_sizes
        function.argtypes, function.restype = (ctypes.POINTER(_CollectiveCall), *pointers, *sizes), ctypes.c_int32
        return function

    def all_reduce(self, dtype: str, x: int, num_elements: int) -> bool:
        return bool(self._sums[dtype](self._pointer, x, num_elements))

    def all_gather(self, x: int, out: int, num_rows: int, row_bytes: int) -> bool:
        return bool(self._gather(self._pointer, x, out, num_rows, row_bytes))


def collective_library() -> ctypes.CDLL | None:
    """Return this process's kernels, or None."""
    return load_kernels().functions
