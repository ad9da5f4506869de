"""Packed weights whose products are one call of a kernel."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, address_or_none, dense_rows
from quire.models.linear.interface import Activation, PackedWeight
from quire.ops.arrays import takes_tensors
from quire.system.threads import num_threads


class KernelWeight(PackedWeight):
    """See `PackedWeight`. It may be one of a mixture's experts."""

    call_kind: ClassVar[int]  #: QuireCallKind in csrc/experts.h
    _structure: ClassVar[type[ctypes.Structure]]  #: the kernel's arguments

    in_features: int
    out_features: int
    address: int  #: of the weight's structure, in kernel calls
    _functions: dict[str, Any]  #: by dtype of x

    @abstractmethod
    def _arguments(self, activation: Activation, *, is_gated: bool) -> dict[str, int]:
        """Return the arguments that only this kind of weight has."""

    @takes_tensors
    def product(
        self, x: np.ndarray, bias: np.ndarray | None, activation: Activation = "none", addend: np.ndarray | None = None
    ) -> np.ndarray:
        return self._multiply(x, bias, None, None, activation, addend, None)

    @takes_tensors
    def gated_product(
        self,
        x: np.ndarray,
        bias: np.ndarray | None,
        up: Self,
        up_bias: np.ndarray | None,
        activation: Activation = "silu",
        addend: np.ndarray | None = None,
        up_addend: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute silu(x W^T + b + addend) * (x U^T + c + up_addend) in one call; U has the shape and bits of W, and
        the addends, float32, the shape of the result."""
        return self._multiply(x, bias, up, up_bias, activation, addend, up_addend)

    def call(self, up: Self | None, activation: Activation | None = None) -> ctypes.Structure:
        """Return the arguments of x W^T, or of silu(x W^T) * (x U^T), without rows and outputs."""
        own = self._arguments(activation or ("none" if up is None else "silu"), is_gated=up is not None)
        return self._structure(weight=self.address, up=up and up.address, **own)

    def _num_threads(self, num_rows: int) -> int:
        return num_threads()

    def _multiply(
        self,
        x: np.ndarray,
        bias: np.ndarray | None,
        up: Self | None,
        up_bias: np.ndarray | None,
        activation: Activation,
        *addends: np.ndarray | None,
    ) -> np.ndarray:
        assert x.shape[1] == self.in_features
        x = dense_rows(x)
        out = new_output((len(x), self.out_features), x.dtype)
        if len(x):
            call: Any = self.call(up, activation)
            call.x, call.x_stride, call.num_rows, call.out = (
                address(x),
                x.strides[0] // x.itemsize,
                len(x),
                address(out),
            )
            call.bias, call.up_bias, call.addend, call.up_addend = map(address_or_none, (bias, up_bias, *addends))
            call.num_threads = self._num_threads(len(x))
            call_kernel(self._functions[x.dtype.name], call)
        return out
