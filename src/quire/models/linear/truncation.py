"""Weights with some bits of their mantissas: masks, and plain weights of tensors where no kernels mask."""

from __future__ import annotations

from typing import Self

import numpy as np

from quire.models.linear.interface import Activation
from quire.ops import functions as ops
from quire.ops.arrays import Array, as_tensor, is_numpy, name_of, numpy_dtype, torch_dtype

#: Bits of a mantissa by dtype.
MANTISSA_BITS = {"bfloat16": 7, "float32": 23}


def truncation(dtype: np.dtype, mantissa_bits: int) -> tuple[int, int]:
    """Return the bits of a word to keep, and those to set: the midpoint of the missing ones."""
    all_bits = MANTISSA_BITS[dtype.name]
    missing = all_bits - mantissa_bits
    if not 0 <= missing <= all_bits:
        raise ValueError(f"{mantissa_bits} mantissa bits are not from 0 to the {all_bits} of {dtype.name}")
    whole = (1 << 8 * dtype.itemsize) - 1
    return whole >> missing << missing, 1 << missing >> 1 if missing else 0


def check_bits(first_row: int, words: np.ndarray, shape: tuple[int, int], dtype: np.dtype) -> None:
    """Raise ValueError if words cannot be added to a weight of this shape and dtype."""
    is_right = words.ndim == 2 and words.dtype.kind == "u" and words.dtype.itemsize == dtype.itemsize
    if not is_right or words.shape[1] != shape[1] or not 0 <= first_row <= first_row + len(words) <= shape[0]:
        raise ValueError(
            f"{words.dtype} {list(words.shape)} from row {first_row} on are no bits of {dtype.name} {list(shape)}"
        )


class PlainWeight:
    """A plain weight, [out_features, in_features], on any device, as a `TruncatableWeight`: the reference of kernels. A
    truncated one is masked in each product."""

    def __init__(self, weight: Array) -> None:
        self._weight, self._dtype = weight, numpy_dtype(name_of(weight.dtype))
        self._mantissa_bits = MANTISSA_BITS[self._dtype.name]
        self.num_bytes = int(weight.nbytes)

    def product(self, x: Array, bias: Array | None, activation: Activation = "none") -> Array:
        y = ops.linear(x, self._masked(self._weight), bias)
        return y if activation == "none" else ops.activate(y, activation)

    def rows(self, ids: Array | slice) -> Array:
        """Return rows of the weight: int64 [n] -> [n, in_features]."""
        return self._masked(self._weight[ids])

    def truncated(self, mantissa_bits: int) -> Self:
        truncation(self._dtype, mantissa_bits)
        view = type(self)(self._weight)
        view._mantissa_bits = mantissa_bits
        return view

    def add_bits(self, first_row: int, words: np.ndarray) -> None:
        check_bits(first_row, words, self._weight.shape, self._dtype)
        rows = self._words(self._weight[first_row : first_row + len(words)])
        signed = words.view(f"i{words.itemsize}")
        rows |= signed if is_numpy(rows) else as_tensor(signed).to(rows.device)

    def _masked(self, weight: Array) -> Array:
        if self._mantissa_bits == MANTISSA_BITS[self._dtype.name]:
            return weight
        kept, middle = truncation(self._dtype, self._mantissa_bits)
        return (self._words(weight) & kept - (1 << 8 * self._dtype.itemsize) | middle).view(weight.dtype)

    def _words(self, weight: Array) -> Array:
        name = f"int{8 * self._dtype.itemsize}"
        return weight.view(np.dtype(name) if is_numpy(weight) else torch_dtype(name))
