"""Weights in blocks, as GGUF and 4-bit checkpoints encode them, with activations quantized to 8 bits in blocks of 32.

Products are exact integers per block, summed in the order of depth, so a row's bits do not depend on other rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.structure import address, dense, dense_rows, structure
from quire.models.linear.interface import Activation
from quire.models.linear.kernel_weight import KernelWeight
from quire.ops.arrays import name_of, numpy_dtype, takes_tensors
from quire.system.pages import new_empty
from quire.system.threads import num_threads

#: Types with kernels, and their numbers: GGUF's, and two of ours for other checkpoints (see `QuireBlockPack`).
TYPES = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20,
    "IQ4_XS": 23, "MXFP4": 39, "INT4": 1004, "INT8": 1008,
}  # fmt: skip
_FORMS = {"none": 0, "silu": 1, "gelu_tanh": 2}  # QuireBlockForm
_SERIAL_ROWS = 16

_BlockPart = structure("QuireBlockPart", "pointer packed", "int64 columns group type")  # csrc/block_linear.h
_BlockWeight = structure("QuireBlockWeight", "pointer parts", "int64 num_parts depth", "pointer order")
_BlockPack = structure("QuireBlockPack", "pointer part rows", "int64 stride depth", "int32 num_threads")
_ReadBlockRows = structure("QuireBlockRows", "pointer weight ids", "int64 num_ids", "pointer to", "int32 num_threads")
_BlockLinear = structure(
    "QuireBlockLinear",
    "pointer weight bias up up_bias x",
    "int64 x_stride num_rows",
    "pointer out",
    "int64 out_stride",
    "int32 form num_threads",
    "pointer addend up_addend",
)


class BlockRows(NamedTuple):
    """Encoded rows of one type."""

    type: str  #: one of `TYPES`, or for a GPU FP8, as INT8 with a zero point of 0
    rows: np.ndarray  #: uint8 [num_rows, row_bytes]
    group: int = 0  #: integers per scale, of our types
    order: np.ndarray | None = None  #: int32 [in_features], the index of each of its inputs in x; None: the same


class BlockWeight(KernelWeight):
    """See `KernelWeight`: for csrc/block_linear.cpp. Copies consecutive output features in the same order of inputs;
    rows decode to `in_features` numbers in a dtype, float32 or bfloat16."""

    call_kind, _structure = 2, _BlockLinear

    def __init__(self, parts: Sequence[BlockRows], in_features: int, dtype: np.dtype, library: ctypes.CDLL) -> None:
        self.in_features, self.out_features = in_features, sum(len(each.rows) for each in parts)
        assert all(same_order(each.order, parts[0].order) for each in parts)
        self._dtype, self._library, self.order = dtype, library, parts[0].order
        self._parts = (_BlockPart * len(parts))()
        self._packed = []
        library.quire_block_bytes.restype = ctypes.c_int64
        for part, given in zip(self._parts, parts, strict=True):
            part.columns, part.group, part.type = len(given.rows), given.group, TYPES[given.type]
            packed = new_empty(
                (library.quire_block_bytes(ctypes.byref(part), ctypes.c_int64(in_features)),), np.dtype(np.uint8)
            )
            part.packed = address(packed)
            rows = dense_rows(given.rows)
            pack = _BlockPack(ctypes.addressof(part), address(rows), rows.strides[0], in_features, num_threads())
            library.quire_block_pack(ctypes.byref(pack))
            self._packed.append(packed)
        self.num_bytes = sum(each.nbytes for each in self._packed)
        ordered = None if self.order is None else address(self.order)
        self._weight = _BlockWeight(ctypes.addressof(self._parts), len(parts), in_features, ordered)
        self.address = ctypes.addressof(self._weight)
        self._functions = {numpy_dtype(name): getattr(library, f"quire_block_linear_{name}") for name in DTYPES}
        self._read_rows = getattr(library, f"quire_block_rows_{name_of(dtype)}")

    def _shares_call(self, up: BlockWeight) -> bool:
        return len(self._parts) + len(up._parts) <= 2 and same_order(self.order, up.order)

    @takes_tensors
    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return decoded rows: int64 [n] -> [n, in_features]. Raises IndexError for a bad id."""
        ids = dense(ids)
        to = np.empty((len(ids), self.in_features), self._dtype)
        count = num_threads() if len(ids) > _SERIAL_ROWS else 1
        if not self._read_rows(ctypes.byref(_ReadBlockRows(self.address, address(ids), len(ids), address(to), count))):
            raise IndexError(f"there are {self.out_features} rows, and ids reach from {ids.min()} to {ids.max()}")
        return to

    def _arguments(self, activation: Activation, *, is_gated: bool) -> dict[str, int]:
        return {"out_stride": self.out_features, "form": _FORMS[activation]}


def same_order(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Return whether two weights take their inputs in the same order."""
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def block_kernels(dtype: np.dtype) -> ctypes.CDLL | None:
    """Return the kernels if they take activations of this dtype."""
    return load_kernels().functions if name_of(dtype) in DTYPES else None
