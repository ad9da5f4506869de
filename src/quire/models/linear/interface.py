"""The interface of packed weights: `panel_weight.pack_weight` and `quantized_weight.quantize_weight` make them."""

from __future__ import annotations

from typing import Literal, Protocol, Self

import numpy as np

from quire.ops.arrays import Array

Activation = Literal["none", "silu", "gelu_tanh"]  #: the last one with `BlockWeight` only


class PackedWeight(Protocol):
    """A linear layer's W, [out_features, in_features], in memory of its own: the plain one can be freed."""

    num_bytes: int

    def product(self, x: Array, bias: Array | None) -> Array:
        """Compute x W^T + b, [num_tokens, out_features] in x's dtype, from x [num_tokens, in_features] with maybe
        strided rows, and [out_features] or None. A row may depend on the number of other rows, not on their
        content."""
        ...


class TruncatableWeight(PackedWeight, Protocol):
    """A packed weight of floats, which may arrive in parts: first the highest mantissa bits, the others 0."""

    def truncated(self, mantissa_bits: int) -> Self:
        """Return a view on the same memory that computes with so many bits of each mantissa, from the highest on. The
        missing ones are at their midpoint: the highest is 1, the others are 0."""
        ...

    def add_bits(self, first_row: int, words: np.ndarray) -> None:
        """OR words, [num_rows, in_features], into the rows from `first_row` on: unsigned integers of the dtype's size,
        with bits of mantissas only. Other threads may add bits to other rows, or use views without these bits.
        ValueError for a shape that does not fit."""
        ...
