"""The functions of `csrc/elementwise.h` for one dtype. They take unchecked addresses."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.recorder import call_kernel
from quire.kernels.structure import structure

#: Sums and products of two arrays, multiples, soft-caps and activations of one.
MAPS = ("add", "multiply", "scale", "cap", "silu", "relu", "gelu", "gelu_tanh")

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


#: Fields of the structures in csrc/elementwise.h, by function.
_FIELDS = {
    "norm": ("pointer x y weight out", "int64 num_rows size", "float eps offset", "int32 num_threads"),
    "norm_heads": ("pointer x out", "int64 num_tokens stride num_heads head_dim", "float eps", "int32 num_threads"),
    "layer_norm": ("pointer x y weight bias out", "int64 num_rows size", "float eps", "int32 num_threads"),
    "rotate": (
        "pointer heads", "int64 num_tokens stride num_query_heads num_key_heads head_dim rotary_dim",
        "pointer cosines sines query_weight key_weight query_scale", "float eps offset",
        "int32 is_interleaved norms_all_heads num_threads query_step",
    ),
    "latents": (
        "pointer queries keys", "int64 num_tokens num_heads query_dim latent_dim rotary_dim",
        "pointer weight cosines sines", "float eps", "int32 is_interleaved num_threads",
    ),
    "gate_heads": (
        "pointer x gates out", "int64 num_tokens num_heads head_dim token_stride head_stride", "int32 num_threads"
    ),
    "gate": ("pointer x out", "int64 num_rows size", "int32 num_threads"),
    **dict.fromkeys(MAPS, ("pointer x y out", "int64 size", "float factor", "int32 num_threads")),
}  # fmt: skip
_STRUCTURES = {name: structure(name, *lines) for name, lines in _FIELDS.items()}


class Elementwise:
    """Kernels of one level's library for one of the kernels' dtypes."""

    def __init__(self, library: ctypes.CDLL, dtype: str) -> None:
        rows = (_INT, _INT)
        self._functions = {name: _typed(library, f"quire_{name}_{dtype}", _POINTER) for name in _STRUCTURES}
        #: best(rows, num_rows, size, stride, values, places, num_threads)
        self.best = _typed(library, f"quire_best_{dtype}", _POINTER, *rows, _INT, _POINTER, _POINTER, ctypes.c_int32)
        #: ban(rows, stride, size, places, num_masks, masks, words, num_threads), of csrc/token_mask.h
        self.ban = _typed(
            library, f"quire_ban_{dtype}", _POINTER, *rows, _POINTER, _INT, _POINTER, _INT, ctypes.c_int32
        )

    def run(self, name: str, *arguments: Any) -> None:
        """Run a kernel with the fields of its structure above. `MAPS` have one in common."""
        call_kernel(self._functions[name], _STRUCTURES[name](*arguments))


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
