"""Packed weights whose products are one call of a kernel."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows
from quire.models.linear.interface import Activation, PackedWeight
from quire.ops.arrays import takes_tensors
from quire.ops.functions import multiply
from quire.system.threads import num_threads


class KernelWeight(PackedWeight):
    """See `PackedWeight`. It may be one of a mixture's experts."""

    call_kind: ClassVar[int]  #: QuireCallKind in csrc/experts.h
    _structure: ClassVar[type[ctypes.Structure]]  #: the kernel's arguments

    in_features: int
    out_features: int
    address: int  #: of the weight's structure, in kernel calls
    _functions: dict[np.dtype, Any]  #: by dtype of x; its name takes a microsecond

    @cached_property
    def _made(self) -> dict[tuple[int, Activation | None, bool], ctypes.Structure]:
        """Calls without rows and outputs, to copy: that is faster than making one."""
        return {}

    @abstractmethod
    def _arguments(self, activation: Activation, *, is_gated: bool) -> dict[str, int]:
        """Return the arguments that only this kind of weight has."""

    @takes_tensors
    def product(
        self, x: np.ndarray, bias: np.ndarray | None, activation: Activation = "none", addend: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute activation(x W^T + b + addend), with an addend like the result, in float32, or None."""
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
        """Compute silu(x W^T + b + addend) * (x U^T + c + up_addend), in one call if possible; U has the shape and bits
        of W, and the addends, float32, the shape of the result."""
        if not self._shares_call(up):
            return multiply(self.product(x, bias, activation, addend), up.product(x, up_bias, "none", up_addend))
        return self._multiply(x, bias, up, up_bias, activation, addend, up_addend)

    def _shares_call(self, up: Self) -> bool:
        return True

    def call(self, up: Self | None, activation: Activation | None = None) -> ctypes.Structure:
        """Return the arguments of x W^T, or of silu(x W^T) * (x U^T), without rows and outputs."""
        key = (self.address, activation, up is None)  # a truncated view has an address of its own
        if (made := self._made.get(key)) is None:
            own = self._arguments(activation or ("none" if up is None else "silu"), is_gated=up is not None)
            made = self._made[key] = self._structure(weight=self.address, **own)
        call = self._structure.from_buffer_copy(made)
        if up is not None:
            call.up = up.address
        return call

    def _num_threads(self, num_rows: int) -> int:
        return num_threads()

    def _multiply(
        self,
        x: np.ndarray,
        bias: np.ndarray | None,
        up: Self | None,
        up_bias: np.ndarray | None,
        activation: Activation,
        addend: np.ndarray | None,
        up_addend: np.ndarray | None,
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
            for field, array in (("bias", bias), ("up_bias", up_bias), ("addend", addend), ("up_addend", up_addend)):
                if array is not None:
                    setattr(call, field, address(array))
            call.num_threads = self._num_threads(len(x))
            call_kernel(self._functions[x.dtype], call)
        return out
