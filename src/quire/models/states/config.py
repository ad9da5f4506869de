"""The shapes of layers with a recurrent state in place of KV. Sizes are those of the whole model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixConfig:
    """A matrix per value head (csrc/linear_attention.h)."""

    num_key_heads: int
    num_value_heads: int  #: a multiple
    key_dim: int  #: of a head, as `value_dim`; a multiple of 16
    value_dim: int  #: a multiple of 32
    has_conv_bias: bool = False

    @property
    def num_channels(self) -> int:
        """The number of queries', keys' and values' features."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    def num_floats(self, num_ranks: int = 1) -> int:
        """Return the size of a state on a rank. All ranks have a single key head."""
        keys = 2 * self.key_dim * (self.num_key_heads // num_ranks if self.num_key_heads > 1 else 1)
        return 3 * keys + self.num_value_heads // num_ranks * self.value_dim * (3 + self.key_dim)


@dataclass(frozen=True)
class DeltaConfig(MatrixConfig):
    """The gated delta rule."""

    is_interleaved: bool = False  #: a key head's rows of projections are together
    inputs_apart: bool = False  #: except those of queries, keys and values, and of z

    def num_parameters(self, hidden: int) -> int:
        features = self.num_channels + 2 * self.num_value_heads * (self.value_dim + 1)
        return hidden * features + 4 * self.num_channels + 2 * self.num_value_heads + self.value_dim


@dataclass(frozen=True)
class MambaConfig(MatrixConfig):
    """Mamba-2, whose groups are key heads."""

    def num_parameters(self, hidden: int) -> int:
        values = self.num_value_heads * self.value_dim
        features = values + self.num_channels + self.num_value_heads
        convolution = self.num_channels * (4 + self.has_conv_bias)
        return hidden * (features + values) + convolution + 3 * self.num_value_heads + values


@dataclass(frozen=True)
class ConvConfig:
    """A gated short convolution (csrc/short_conv.h)."""

    num_channels: int  #: a multiple of 16
    has_bias: bool = False  #: of the convolution and the projections

    def num_floats(self, num_ranks: int = 1) -> int:
        """As `MatrixConfig.num_floats`."""
        return 2 * self.num_channels // num_ranks

    def num_parameters(self, hidden: int) -> int:
        return (4 * hidden + 3) * self.num_channels + (4 * self.num_channels + hidden) * self.has_bias


StateConfig = DeltaConfig | MambaConfig | ConvConfig
