"""Weights in panels of outputs (`kernels/csrc/linear.h`), also tables of rows: a tied head needs no copy."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import layout
from quire.models.linear.interface import Activation
from quire.ops.arrays import empty
from quire.system.threads import num_threads

_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
#: Up to this size, one thread is faster than waking a second one.
_SERIAL_PRODUCTS = 2**18
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
    """See `PackedWeight`. Packs float32 or bfloat16; whole panels in place, which invalidates views."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        name = _NAMES[weight.dtype]
        self.out_features, self.in_features = weight.shape
        self._multiply = getattr(library, f"quire_linear_{name}")
        self._read_rows = getattr(library, f"quire_rows_{name}")
        panel, depth = (_whole_number(library, each) for each in ("quire_linear_panel", f"quire_linear_depth_{name}"))
        num_rows, num_columns = -(-self.out_features // panel) * panel, -(-self.in_features // depth) * depth
        is_whole = (num_rows, num_columns) == weight.shape and weight.is_contiguous()
        if weight.stride(1) != 1:
            weight = weight.contiguous()
        self._packed = weight if is_whole else empty((num_rows, num_columns), weight.dtype)
        self.num_bytes = self._packed.numel() * self._packed.element_size()
        pack = getattr(library, f"quire_pack_{name}")
        pack.restype = self._multiply.restype = None
        pack(
            ctypes.byref(
                _Pack(weight.data_ptr(), weight.stride(0), self.in_features, self.out_features, self._packed.data_ptr())
            )
        )

    @property
    def address(self) -> int:
        """The weight's address in kernel calls."""
        return self._packed.data_ptr()

    @staticmethod
    def supports(dtype: torch.dtype) -> bool:
        return dtype in _NAMES

    def product(self, x: Tensor, bias: Tensor | None, activation: Activation = "none") -> Tensor:
        return self._call(x, bias, None, None, activation == "silu")

    def gated_product(self, x: Tensor, bias: Tensor | None, up: PanelWeight, up_bias: Tensor | None) -> Tensor:
        """Compute silu(x W^T + b) * (x U^T + c) in one call; U has the shape of W."""
        return self._call(x, bias, up, up_bias, True)

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows of the unpacked weight: int64 [n] -> [n, in_features]. Raises IndexError for a bad id."""
        ids = ids.contiguous()
        to = self._packed.new_empty(len(ids), self.in_features)
        count = num_threads() if len(ids) > _SERIAL_ROWS else 1
        call = _PanelRows(
            self._packed.data_ptr(),
            self.in_features,
            self.out_features,
            len(ids),
            ids.data_ptr(),
            to.data_ptr(),
            count,
        )
        if not self._read_rows(ctypes.byref(call)):
            raise IndexError(f"there are {self.out_features} rows, and ids reach from {ids.min()} to {ids.max()}")
        return to

    def _call(
        self, x: Tensor, bias: Tensor | None, up: PanelWeight | None, up_bias: Tensor | None, silu: bool
    ) -> Tensor:
        assert x.dtype == self._packed.dtype
        assert x.shape[1] == self.in_features
        if x.stride(1) != 1:
            x = x.contiguous()
        num_rows = len(x)
        out = new_output((num_rows, self.out_features), x.dtype)
        is_small = num_rows * self.in_features * self.out_features <= _SERIAL_PRODUCTS
        call = _PanelLinear(
            x.data_ptr(),
            x.stride(0),
            num_rows,
            self.in_features,
            self.out_features,
            self._packed.data_ptr(),
            None if bias is None else bias.data_ptr(),
            None if up is None else up._packed.data_ptr(),
            None if up_bias is None else up_bias.data_ptr(),
            out.data_ptr(),
            self.out_features,
            silu,
            1 if is_small else num_threads(),
        )
        call_kernel(self._multiply, call)
        return out


def panel_kernels(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the kernels if they are faster than torch for weights of this dtype; the generic level is not."""
    kernels = load_kernels()
    return kernels.functions if PanelWeight.supports(dtype) and kernels.level != "generic" else None


def _whole_number(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    return int(function())
