"""The shape of layers with the gated delta rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeltaConfig:
    """Sizes of the whole model; csrc/gated_delta.h says what they are of."""

    num_key_heads: int
    num_value_heads: int  #: a multiple
    key_dim: int  #: of a head, as `value_dim`; a multiple of 16
    value_dim: int  #: a multiple of 32
    is_interleaved: bool = False  #: a key head's rows of projections are together

    @property
    def num_channels(self) -> int:
        """The number of queries', keys' and values' features."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    @property
    def num_floats(self) -> int:
        """The size of a state."""
        return 3 * self.num_channels + self.num_value_heads * self.value_dim * self.key_dim

    def num_parameters(self, hidden: int) -> int:
        features = self.num_channels + 2 * self.num_value_heads * (self.value_dim + 1)
        return hidden * features + 4 * self.num_channels + 2 * self.num_value_heads + self.value_dim
