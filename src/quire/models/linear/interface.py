"""The interface of packed weights: `packed_weight.pack_weight` and `quantized_weight.quantize_weight` make them."""

from __future__ import annotations

from typing import Literal, Protocol

from quire.ops.arrays import Array

Activation = Literal["none", "silu"]


class PackedWeight(Protocol):
    """A linear layer's W, [out_features, in_features], in memory of its own: the plain one can be freed."""

    num_bytes: int

    def product(self, x: Array, bias: Array | None, activation: Activation = "none") -> Array:
        """Compute activation(x W^T + b), [num_tokens, out_features] in x's dtype, from x [num_tokens, in_features] with
        maybe strided rows, and [out_features] or None. A row may depend on the number of other rows, not on their
        content."""
        ...
