"""Weights in panels of outputs (`kernels/csrc/linear.h`), also tables of rows: a tied head needs no copy."""

from __future__ import annotations

import copy
import ctypes
from typing import Self

import numpy as np

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.structure import address, dense, dense_rows, structure
from quire.models.linear.interface import Activation
from quire.models.linear.kernel_weight import KernelWeight
from quire.models.linear.truncation import check_bits, truncation
from quire.ops.arrays import Array, DType, as_numpy, is_on_host, name_of, takes_tensors
from quire.system.pages import new_empty
from quire.system.threads import num_threads

_ALL_BITS = 2**32 - 1
_WORTHWHILE = 0.85  #: most bytes of a compact weight, as a share of the plain one's
#: A compact weight's usual share of the plain one's bytes.
COMPACT_SHARE = 0.755
#: Up to this size, one thread is faster than waking a second one.
SERIAL_PRODUCTS = 2**18
_SERIAL_ROWS = 16
_SILU = {"none": 0, "silu": 1}

_PanelLinear = structure(
    "QuireLinear",
    "pointer x",
    "int64 x_stride num_rows in_features out_features",
    "pointer weight bias up up_bias out",
    "int64 out_stride",
    "int32 silu num_threads",
    "pointer addend up_addend",
)  # csrc/linear.h
_Pack = structure("QuirePack", "pointer weight", "int64 stride in_features out_features", "pointer packed")


class _Panel(ctypes.Structure):
    """`QuirePanel` there."""

    _fields_ = (("start", ctypes.c_int64), ("high", ctypes.c_uint8 * 8))


_WeightPanels = structure("QuireWeight", "pointer data panels", "uint32 kept middle")
_CompactPack = structure(
    "QuireCompact",
    "pointer weight",
    "int64 stride in_features out_features",
    "pointer panels packed",
    "int32 num_threads",
)
_Bits = structure(
    "QuireBits",
    "pointer weight",
    "int64 in_features out_features first_row num_rows",
    "pointer words",
    "int32 num_threads",
)
_PanelRows = structure(
    "QuireRows", "pointer weight", "int64 in_features out_features num_ids", "pointer ids to", "int32 num_threads"
)


class PanelWeight(KernelWeight):
    """See `KernelWeight`. Packs float32 or bfloat16; whole panels in place, which invalidates views."""

    call_kind, _structure = 0, _PanelLinear

    def __init__(self, weight: Array, library: ctypes.CDLL) -> None:
        weight = dense_rows(as_numpy(weight))
        self._dtype, name = weight.dtype, weight.dtype.name
        self.out_features, self.in_features = weight.shape
        self._functions = {weight.dtype: getattr(library, f"quire_linear_{name}")}
        self._functions[weight.dtype].restype = None
        self._read_rows = getattr(library, f"quire_rows_{name}")
        self._add_bits = getattr(library, f"quire_add_bits_{name}")
        self._packed = self._pack(weight, library)
        self.num_bytes = self._packed.nbytes
        self._weight = _WeightPanels(address(self._packed), None, _ALL_BITS, 0)
        self.address = ctypes.addressof(self._weight)

    def _pack(self, weight: np.ndarray, library: ctypes.CDLL) -> np.ndarray:
        name = weight.dtype.name
        panel, depth = (_whole_number(library, each) for each in ("quire_linear_panel", f"quire_linear_depth_{name}"))
        shape = (-(-self.out_features // panel) * panel, -(-self.in_features // depth) * depth)
        packed = weight if shape == weight.shape and weight.flags.c_contiguous else new_empty(shape, weight.dtype)
        pack = getattr(library, f"quire_pack_{name}")
        pack.restype = None
        pack(ctypes.byref(_Pack(*_source(weight), address(packed))))
        return packed

    @staticmethod
    def supports(dtype: DType) -> bool:
        return name_of(dtype) in DTYPES

    def _arguments(self, activation: Activation, *, is_gated: bool) -> dict[str, int]:
        sizes = {"in_features": self.in_features, "out_features": self.out_features, "out_stride": self.out_features}
        return {**sizes, "silu": _SILU[activation]}

    def _num_threads(self, num_rows: int) -> int:
        return 1 if num_rows * self.in_features * self.out_features <= SERIAL_PRODUCTS else num_threads()

    @takes_tensors
    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the unpacked weight: int64 [n] -> [n, in_features]. Raises IndexError for a bad id."""
        ids = dense(ids)
        to = np.empty((len(ids), self.in_features), self._dtype)
        count = num_threads() if len(ids) > _SERIAL_ROWS else 1
        call = _PanelRows(self.address, self.in_features, self.out_features, len(ids), address(ids), address(to), count)
        if not self._read_rows(ctypes.byref(call)):
            raise IndexError(f"there are {self.out_features} rows, and ids reach from {ids.min()} to {ids.max()}")
        return to

    def truncated(self, mantissa_bits: int) -> Self:
        """See `TruncatableWeight`."""
        kept, middle = truncation(self._dtype, mantissa_bits)
        each = 4 // self._dtype.itemsize  # words in 32 bits
        repeated = sum(1 << 32 // each * i for i in range(each))
        view = copy.copy(self)
        view._weight = _WeightPanels(self._weight.data, self._weight.panels, kept * repeated, middle * repeated)
        view.address = ctypes.addressof(view._weight)
        return view

    def add_bits(self, first_row: int, words: np.ndarray) -> None:
        """See `TruncatableWeight`."""
        check_bits(first_row, words, (self.out_features, self.in_features), self._dtype)
        words = dense(words)
        sizes = (self.in_features, self.out_features, first_row, len(words))
        call = _Bits(self.address, *sizes, address(words), num_threads())
        if len(words) and not self._add_bits(ctypes.byref(call)):
            raise ValueError("a compact weight takes bits of mantissas only")


class CompactWeight(PanelWeight):
    """A weight of bfloat16 with 12 bits per number, which kernels decode to the same words: products have the bits of
    `PanelWeight`. Panels with many unusual exponents stay plain."""

    def __init__(self, weight: Array, library: ctypes.CDLL, panels: ctypes.Array[_Panel] | None = None) -> None:
        weight = dense_rows(as_numpy(weight))
        self._panels = measure_panels(weight, library) if panels is None else panels
        super().__init__(weight, library)
        self.num_bytes += ctypes.sizeof(self._panels)
        self._weight.panels = ctypes.addressof(self._panels)

    @classmethod
    def of(cls, weight: Array, library: ctypes.CDLL) -> Self | None:
        """Return a compact weight, or None if it saves less than 15 %."""
        weight = dense_rows(as_numpy(weight))
        panels = measure_panels(weight, library)
        is_small = panels[-1].start + ctypes.sizeof(panels) <= _WORTHWHILE * weight.nbytes
        return cls(weight, library, panels) if is_small else None

    def _pack(self, weight: np.ndarray, library: ctypes.CDLL) -> np.ndarray:
        packed = new_empty((self._panels[-1].start,), np.dtype(np.uint8))
        pack = _CompactPack(*_source(weight), ctypes.addressof(self._panels), address(packed), num_threads())
        library.quire_compact(ctypes.byref(pack))
        return packed


def measure_panels(weight: np.ndarray, library: ctypes.CDLL) -> ctypes.Array[_Panel]:
    """Return the panels of a compact weight, and one more that starts at its end."""
    panels = (_Panel * (-(-len(weight) // _whole_number(library, "quire_linear_panel")) + 1))()
    pack = _CompactPack(*_source(weight), ctypes.addressof(panels), None, num_threads())
    library.quire_compact(ctypes.byref(pack))
    return panels


def _source(weight: np.ndarray) -> tuple[int, int, int, int]:
    out_features, in_features = weight.shape
    return address(weight), weight.strides[0] // weight.itemsize, in_features, out_features


def panel_kernels(dtype: DType) -> ctypes.CDLL | None:
    """Return the kernels if they support weights of this dtype."""
    return load_kernels().functions if PanelWeight.supports(dtype) else None


def pack_weight(weight: Array, *, is_compact: bool = False) -> PanelWeight | None:
    """Pack a weight, [out_features, in_features], which may be overwritten; a compact one if that saves enough.
    Returns None without such kernels."""
    if not is_on_host(weight) or 0 in weight.shape or (library := panel_kernels(weight.dtype)) is None:
        return None
    return pack_panels(weight, library, is_compact=is_compact)


def pack_panels(weight: Array, library: ctypes.CDLL, *, is_compact: bool) -> PanelWeight:
    """As `pack_weight` with these kernels."""
    compact = CompactWeight.of(weight, library) if is_compact and name_of(weight.dtype) == "bfloat16" else None
    return PanelWeight(weight, library) if compact is None else compact


def _whole_number(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    return int(function())
