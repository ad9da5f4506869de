"""Short causal convolutions: the weights, and layers with a gated one in place of attention (csrc/short_conv.h)."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from quire.attention.states import LayerStates
from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, structure
from quire.models.base import Attend
from quire.models.layers import select_rows
from quire.models.linear.layer import Linear
from quire.models.model_config import ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share, TensorShare
from quire.models.rotary import Rotation
from quire.models.states.config import ConvConfig
from quire.ops.arrays import Array, as_numpy, cast, empty, name_of, takes_tensors, widen
from quire.ops.module import Module

_TAPS, _UNIT = 3, 16  # inputs of a sum; channels of ranks are multiples

_ShortConv = structure(
    "QuireShortConv", "pointer plan states b c x out conv bias", "int64 row_stride channels"
)  # csrc/short_conv.h


class Convolution(Module):
    """The weights of a convolution over tokens, a channel at a time."""

    def __init__(self, channels: Share, num_taps: int, *, bias: bool, **factory: Any) -> None:
        self.channels = channels
        self.weight = empty((channels.size, 1, num_taps), **factory)
        self.bias = empty((channels.size,), **factory) if bias else None

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (share := self.channels).is_whole:
            yield f"{name}.weight", TensorShare((share.total, *self.weight.shape[1:]), 0, share.ranges)
            if self.bias is not None:
                yield f"{name}.bias", TensorShare((share.total,), 0, share.ranges)

    def by_tap(self) -> np.ndarray:
        """Return float32 weights [num_taps, channels]."""
        return float_copy(self.weight[:, 0].T)


def float_copy(x: Array) -> np.ndarray:
    return np.ascontiguousarray(as_numpy(widen(x)))


def load_function(name: str, dtype: Any) -> Any:
    """Return this process's kernel of this name for a dtype, or None."""
    return _load_function(name, name_of(dtype), os.environ.get("QUIRE_KERNELS"))


@functools.cache
def _load_function(name: str, dtype: str, level: str | None) -> Any:
    library = load_kernels().functions
    return None if library is None or dtype not in DTYPES else library[f"{name}_{dtype}"]


class ShortConv(Module):
    """A layer in place of attention: c * convolution(b * x), with b, c and x from one product."""

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        assert isinstance(config.state, ConvConfig)
        self.index, has_bias = index, config.state.has_bias
        self.channels = split.state_heads(config.state.num_channels // _UNIT).of_size(_UNIT)
        self.in_proj = Linear(config.hidden_size, self.channels.repeated(3), bias=has_bias, **factory)
        self.conv = Convolution(self.channels, _TAPS, bias=has_bias, **factory)
        self.out_proj = Linear(self.channels, config.hidden_size, bias=has_bias, group=split.group, **factory)
        self._weights: list[np.ndarray | None] = []  # float32 copies

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        return self.out_proj(select_rows(attend(self.index, self.in_proj(x), None, None, self._rule), rows))

    def _rule(self, states: LayerStates | Any, x: Array, *_: None) -> Array:
        """As `StateRule`."""
        if not isinstance(states, LayerStates):
            from quire.models.states import on_triton  # imports torch and Triton

            return on_triton.short_conv(self, states, x)
        return self._compute(x, states, load_function("quire_short_conv", x.dtype))

    @takes_tensors
    def _compute(self, x: np.ndarray, states: LayerStates, function: Any) -> np.ndarray:
        if not self._weights:
            bias = self.conv.bias
            self._weights = [self.conv.by_tap(), None if bias is None else float_copy(bias)]
        if function is None:
            return self._reference(x, states)
        x, size, channels = dense_rows(x), x.itemsize, self.channels.size
        out = new_output((len(x), channels), x.dtype)
        parts = [address(x) + i * channels * size for i in range(3)]
        weights = [None if each is None else address(each) for each in self._weights]
        given = (states.plan.address, address(states.memory), *parts, address(out), *weights)
        call_kernel(function, _ShortConv(*given, x.strides[0] // size, channels))
        return out

    def _reference(self, x: np.ndarray, states: LayerStates) -> np.ndarray:
        """As the kernel, in numpy."""
        conv, bias = self._weights
        assert conv is not None
        b, c, given = np.split(widen(x), 3, 1)
        given = b * given
        out = np.zeros_like(given)
        for first, end, source, target in states.plan.runs.tolist():
            history = np.zeros_like(states.memory[target]) if source < 0 else states.memory[source]
            inputs = np.concatenate((history.reshape(_TAPS - 1, -1), given[first:end]))
            out[first:end] = sum(inputs[tap : tap + end - first] * conv[tap] for tap in range(_TAPS))
            states.memory[target] = inputs[1 - _TAPS :].ravel()
        return cast(c * (out if bias is None else out + bias), x.dtype)
