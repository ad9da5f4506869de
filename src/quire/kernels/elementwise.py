"""The functions of `csrc/elementwise.h` for one dtype. They take unchecked addresses."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.recorder import call_kernel
from quire.kernels.structure import layout

#: Sums and products of two arrays, multiples, soft-caps and activations of one.
MAPS = ("add", "multiply", "scale", "cap", "silu", "relu", "gelu", "gelu_tanh")

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


class _Norm(ctypes.Structure):
    """`QuireNorm` in csrc/elementwise.h."""

    _fields_ = layout("pointer x y weight out", "int64 num_rows size", "float eps offset", "int32 num_threads")


class _NormHeads(ctypes.Structure):
    """`QuireNormHeads` there."""

    _fields_ = layout("pointer x out", "int64 num_tokens stride num_heads head_dim", "float eps", "int32 num_threads")


class _Rotate(ctypes.Structure):
    """`QuireRotate` there."""

    _fields_ = layout(
        "pointer heads",
        "int64 num_tokens stride num_query_heads num_key_heads head_dim rotary_dim",
        "pointer cosines sines query_weight key_weight query_scale",
        "float eps offset",
        "int32 is_interleaved norms_all_heads num_threads",
    )


class _LayerNorm(ctypes.Structure):
    """`QuireLayerNorm` there."""

    _fields_ = layout("pointer x y weight bias out", "int64 num_rows size", "float eps", "int32 num_threads")


class _Map(ctypes.Structure):
    """`QuireMap` there."""

    _fields_ = layout("pointer x y out", "int64 size", "float factor", "int32 num_threads")


class _Gate(ctypes.Structure):
    """`QuireGate` there."""

    _fields_ = layout("pointer x out", "int64 num_rows size", "int32 num_threads")


class Elementwise:
    """Kernels of one level's library for one of the kernels' dtypes."""

    def __init__(self, library: ctypes.CDLL, dtype: str) -> None:
        rows = (_INT, _INT)
        self._norm = _typed(library, f"quire_norm_{dtype}", _POINTER)
        self._norm_heads = _typed(library, f"quire_norm_heads_{dtype}", _POINTER)
        self._layer_norm = _typed(library, f"quire_layer_norm_{dtype}", _POINTER)
        self._gate = _typed(library, f"quire_gate_{dtype}", _POINTER)
        self._rotate = _typed(library, f"quire_rotate_{dtype}", _POINTER)
        self._maps = {name: _typed(library, f"quire_{name}_{dtype}", _POINTER) for name in MAPS}
        #: best(rows, num_rows, size, stride, values, places, num_threads)
        self.best = _typed(library, f"quire_best_{dtype}", _POINTER, *rows, _INT, _POINTER, _POINTER, ctypes.c_int32)
        #: ban(rows, stride, size, places, num_masks, masks, words, num_threads), of csrc/token_mask.h
        self.ban = _typed(
            library, f"quire_ban_{dtype}", _POINTER, *rows, _POINTER, _INT, _POINTER, _INT, ctypes.c_int32
        )

    def norm(self, *arguments: Any) -> None:
        """x or None, y, weight, out, num_rows, size, eps, offset, num_threads"""
        call_kernel(self._norm, _Norm(*arguments))

    def norm_heads(self, *arguments: Any) -> None:
        """x, out, num_tokens, stride, num_heads, head_dim, eps, num_threads"""
        call_kernel(self._norm_heads, _NormHeads(*arguments))

    def layer_norm(self, *arguments: Any) -> None:
        """x or None, y, weight or None, bias or None, out, num_rows, size, eps, num_threads"""
        call_kernel(self._layer_norm, _LayerNorm(*arguments))

    def map(self, name: str, *arguments: Any) -> None:
        """One of `MAPS`, x, y or None, out, size, factor, num_threads"""
        call_kernel(self._maps[name], _Map(*arguments))

    def gate(self, *arguments: Any) -> None:
        """x, out, num_rows, size, num_threads"""
        call_kernel(self._gate, _Gate(*arguments))

    def rotate(self, *arguments: Any) -> None:
        """heads, num_tokens, stride, num_query_heads, num_key_heads, head_dim, rotary_dim, cosines, sines, query_weight
        or None, key_weight or None, query_scale or None, eps, offset, is_interleaved, norms_all_heads, num_threads"""
        call_kernel(self._rotate, _Rotate(*arguments))


def _typed(library: ctypes.CDLL, name: str, *types: Any) -> Any:
    function = library[name]  # a new object, so its types are our own
    function.argtypes, function.restype = types, None
    return function


def elementwise(dtype: str) -> Elementwise | None:
    """Return this process's functions for a dtype, or None. Raises ValueError as `load_kernels`."""
    return _elementwise(dtype, os.environ.get("QUIRE_KERNELS"))


@functools.cache
def _elementwise(dtype: str, level: str | None) -> Elementwise | None:
    functions = load_kernels().functions
    return None if functions is None or dtype not in DTYPES else Elementwise(functions, dtype)
