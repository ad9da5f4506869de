"""The shapes of layers with a recurrent state in place of KV. Sizes are those of the whole model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeltaConfig:
    """The gated delta rule (csrc/gated_delta.h)."""

    num_key_heads: int
    num_value_heads: int  #: a multiple
    key_dim: int  #: of a head, as `value_dim`; a multiple of 16
    value_dim: int  #: a multiple of 32
    is_interleaved: bool = False  #: a key head's rows of projections are together
    inputs_apart: bool = False  #: except those of queries, keys and values, and of z

    @property
    def num_channels(self) -> int:
        """The number of queries', keys' and values' features."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    def num_floats(self, num_ranks: int = 1) -> int:
        """Return the size of a state on a rank."""
        return (3 * self.num_channels + self.num_value_heads * self.value_dim * self.key_dim) // num_ranks

    def num_parameters(self, hidden: int) -> int:
        features = self.num_channels + 2 * self.num_value_heads * (self.value_dim + 1)
        return hidden * features + 4 * self.num_channels + 2 * self.num_value_heads + self.value_dim


@dataclass(frozen=True)
class ConvConfig:
    """A gated short convolution (csrc/short_conv.h)."""

    num_channels: int  #: a multiple of 16
    has_bias: bool = False  #: of the convolution and the projections

    def num_floats(self, num_ranks: int = 1) -> int:
        """As `DeltaConfig.num_floats`."""
        return 2 * self.num_channels // num_ranks

    def num_parameters(self, hidden: int) -> int:
        return (4 * hidden + 3) * self.num_channels + (4 * self.num_channels + hidden) * self.has_bias


StateConfig = DeltaConfig | ConvConfig
