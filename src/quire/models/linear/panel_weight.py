"""Weights in panels of outputs (`kernels/csrc/linear.h`), also tables of rows: a tied head needs no copy."""

from __future__ import annotations

import ctypes

import numpy as np

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense, dense_rows, layout
from quire.models.linear.interface import Activation
from quire.ops.arrays import Array, DType, as_numpy, is_on_host, name_of, takes_tensors
from quire.system.pages import new_empty
from quire.system.threads import num_threads

#: Up to this size, one thread is faster than waking a second one.
SERIAL_PRODUCTS = 2**18
_SERIAL_ROWS = 16


class _PanelLinear(ctypes.Structure):
    """`QuireLinear` in csrc/linear.h."""

    _fields_ = layout(
        "pointer x",
        "int64 x_stride num_rows in_features out_features",
        "pointer weight bias up up_bias out",
        "int64 out_stride",
        "int32 silu num_threads",
    )


class _Pack(ctypes.Structure):
    """`QuirePack` there."""

    _fields_ = layout("pointer weight", "int64 stride in_features out_features", "pointer packed")


class _PanelRows(ctypes.Structure):
    """`QuireRows` there."""

    _fields_ = layout("pointer packed", "int64 in_features out_features num_ids", "pointer ids to", "int32 num_threads")


class PanelWeight:
    """See `GroupedWeight`. Packs float32 or bfloat16; whole panels in place, which invalidates views."""

    call_kind = 0

    def __init__(self, weight: Array, library: ctypes.CDLL) -> None:
        weight = as_numpy(weight)
        name = weight.dtype.name
        self.out_features, self.in_features = weight.shape
        self._multiply = getattr(library, f"quire_linear_{name}")
        self._read_rows = getattr(library, f"quire_rows_{name}")
        panel, depth = (_whole_number(library, each) for each in ("quire_linear_panel", f"quire_linear_depth_{name}"))
        num_rows, num_columns = -(-self.out_features // panel) * panel, -(-self.in_features // depth) * depth
        is_whole = (num_rows, num_columns) == weight.shape and weight.flags.c_contiguous
        weight = dense_rows(weight)
        self._packed = weight if is_whole else new_empty((num_rows, num_columns), weight.dtype)
        self.address = address(self._packed)  #: in kernel calls
        self.num_bytes = self._packed.nbytes
        pack = getattr(library, f"quire_pack_{name}")
        pack.restype = self._multiply.restype = None
        pack(
            ctypes.byref(
                _Pack(
                    address(weight),
                    weight.strides[0] // weight.itemsize,
                    self.in_features,
                    self.out_features,
                    self.address,
                )
            )
        )

    @staticmethod
    def supports(dtype: DType) -> bool:
        return name_of(dtype) in DTYPES

    @takes_tensors
    def product(self, x: np.ndarray, bias: np.ndarray | None, activation: Activation = "none") -> np.ndarray:
        return self._call(x, bias, None, None, activation == "silu")

    @takes_tensors
    def gated_product(
        self, x: np.ndarray, bias: np.ndarray | None, up: PanelWeight, up_bias: np.ndarray | None
    ) -> np.ndarray:
        """Compute silu(x W^T + b) * (x U^T + c) in one call; U has the shape of W."""
        return self._call(x, bias, up, up_bias, True)

    def call(self, up: PanelWeight | None) -> ctypes.Structure:
        sizes = (self.in_features, self.out_features)
        addresses = (self.address, None, None if up is None else up.address, None)
        return _PanelLinear(None, 0, 0, *sizes, *addresses, None, self.out_features, up is not None)

    @takes_tensors
    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the unpacked weight: int64 [n] -> [n, in_features]. Raises IndexError for a bad id."""
        ids = dense(ids)
        to = np.empty((len(ids), self.in_features), self._packed.dtype)
        count = num_threads() if len(ids) > _SERIAL_ROWS else 1
        call = _PanelRows(self.address, self.in_features, self.out_features, len(ids), address(ids), address(to), count)
        if not self._read_rows(ctypes.byref(call)):
            raise IndexError(f"there are {self.out_features} rows, and ids reach from {ids.min()} to {ids.max()}")
        return to

    def _call(
        self,
        x: np.ndarray,
        bias: np.ndarray | None,
        up: PanelWeight | None,
        up_bias: np.ndarray | None,
        silu: bool,
    ) -> np.ndarray:
        assert x.dtype == self._packed.dtype
        assert x.shape[1] == self.in_features
        x = dense_rows(x)
        num_rows = len(x)
        out = new_output((num_rows, self.out_features), x.dtype)
        is_small = num_rows * self.in_features * self.out_features <= SERIAL_PRODUCTS
        call = _PanelLinear(
            address(x),
            x.strides[0] // x.itemsize,
            num_rows,
            self.in_features,
            self.out_features,
            self.address,
            None if bias is None else address(bias),
            None if up is None else up.address,
            None if up_bias is None else address(up_bias),
            address(out),
            self.out_features,
            silu,
            1 if is_small else num_threads(),
        )
        call_kernel(self._multiply, call)
        return out


def panel_kernels(dtype: DType) -> ctypes.CDLL | None:
    """Return the kernels if they support weights of this dtype."""
    return load_kernels().functions if PanelWeight.supports(dtype) else None


def pack_weight(weight: Array) -> PanelWeight | None:
    """Pack a weight, [out_features, in_features], which may be overwritten. Returns None without such kernels."""
    if not is_on_host(weight) or 0 in weight.shape or (library := panel_kernels(weight.dtype)) is None:
        return None
    return PanelWeight(weight, library)


def _whole_number(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    return int(function())
