"""Weights of 8 or 4 bits, with activations quantized to 8 bits row by row.

- int8: one scale per output feature.
- int4: a scale and a lowest weight, both bfloat16, per 64 weights of an output feature: 4.5 bits per weight.

Products are exact integers, so a row's bits do not depend on other rows.
"""

from __future__ import annotations

import ctypes

import numpy as np

from quire.kernels.loaded import DTYPES, load_kernels, uses_triton
from quire.kernels.structure import address, dense_rows, structure
from quire.models.linear.interface import Activation, PackedWeight
from quire.models.linear.kernel_weight import KernelWeight
from quire.ops.arrays import Array, as_numpy, is_numpy, is_on_host, name_of, numpy_dtype
from quire.system.pages import new_empty
from quire.system.threads import num_threads

BITS = {"int8": 8, "int4": 4}
#: Names of the arithmetic in the KV blocks' namespace, by device. On a GPU, activations keep their dtype.
RECIPES = {
    "cpu": {"none": "none", "int8": "int8/row/1", "int4": "int4/64/1"},
    "cuda": {"none": "none", "int8": "int8/row/weight-only/1", "int4": "int4/64/weight-only/1"},
}
#: The head's, with any other quantization.
HEAD_QUANTIZATION = "int8"

_PANEL, _GROUP = 32, 64
_MAX_DEPTH = 2**17  # longer sums may exceed 32 bits
_FORMS = {"none": 0, "silu": 1}  # QuireForm
_GATED = 2

_Weight = structure(
    "QuireQuantizedWeight", "pointer packed scales", "int64 depth columns bits"
)  # csrc/quantized_linear.h
_QuantizedLinear = structure(
    "QuireQuantizedLinear",
    "pointer weight bias up up_bias x",
    "int64 x_stride num_rows",
    "pointer out",
    "int32 form num_threads",
    "pointer addend up_addend",
)
_Quantize = structure(
    "QuireQuantize", "pointer weight", "int64 stride depth columns", "pointer packed scales", "int32 bits num_threads"
)


def quantize_weight(weight: Array, quantization: str) -> PackedWeight:
    """Quantize a weight, [out_features, in_features], to int8 or int4. Raises ValueError for other dtypes, devices or
    sizes, and for Triton kernels that do not work here."""
    if not is_numpy(weight) and uses_triton(weight.device.type):
        from quire.models.linear.triton_weight import quantize  # imports torch and Triton

        return quantize(weight, BITS[quantization])
    if not is_on_host(weight) or name_of(weight.dtype) not in DTYPES or weight.shape[1] > _MAX_DEPTH:
        raise ValueError(
            f"a weight of {tuple(weight.shape)} in {name_of(weight.dtype)} cannot be quantized here; supported: "
            f"float32 or bfloat16 in main memory, and up to {_MAX_DEPTH} inputs, or a GPU with Triton"
        )
    library = load_kernels().functions
    assert library is not None, "`CausalLM.quantize` refuses to"
    return QuantizedWeight(weight, BITS[quantization], library)


def quantized_bytes(out_features: int, in_features: int, quantization: str) -> int:
    columns = -(-out_features // _PANEL) * _PANEL
    depth = -(-in_features // _GROUP) * _GROUP
    bits = BITS[quantization]
    return columns * depth + 4 * columns if bits == 8 else columns * depth // 2 + columns * (depth // _GROUP) * 4


class QuantizedWeight(KernelWeight):
    """See `KernelWeight`: for csrc/quantized_linear.cpp. `bits` is 8 or 4. All levels share one layout."""

    call_kind, _structure = 1, _QuantizedLinear

    def __init__(self, weight: Array, bits: int, library: ctypes.CDLL) -> None:
        weight = as_numpy(weight)
        self.bits = bits
        self.out_features, self.in_features = weight.shape
        self._library = library
        weight = dense_rows(weight)
        num_columns = -(-self.out_features // _PANEL) * _PANEL
        library.quire_quantized_bytes.restype = ctypes.c_int64
        sizes = (ctypes.c_int64(self.out_features), ctypes.c_int64(self.in_features), ctypes.c_int32(bits))
        self._packed = new_empty((library.quire_quantized_bytes(*sizes),), np.dtype(np.uint8))
        self._scales = np.empty(num_columns if bits == 8 else 0, np.float32)
        self.num_bytes = self._packed.nbytes + self._scales.nbytes
        call = _Quantize(
            weight=address(weight),
            stride=weight.strides[0] // weight.itemsize,
            depth=self.in_features,
            columns=self.out_features,
            packed=address(self._packed),
            scales=address(self._scales),
            bits=bits,
            num_threads=num_threads(),
        )
        getattr(library, f"quire_quantize_{weight.dtype.name}")(ctypes.byref(call))
        self._weight = _Weight(
            packed=address(self._packed),
            scales=address(self._scales),
            depth=self.in_features,
            columns=self.out_features,
            bits=bits,
        )
        self.address = ctypes.addressof(self._weight)
        self._functions = {numpy_dtype(name): getattr(library, f"quire_quantized_linear_{name}") for name in DTYPES}

    def _arguments(self, activation: Activation, *, is_gated: bool) -> dict[str, int]:
        return {"form": _GATED if is_gated else _FORMS[activation]}
