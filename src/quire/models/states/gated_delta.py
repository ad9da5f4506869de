"""Layers with the gated delta rule, which keep a state per sequence instead of KV (csrc/gated_delta.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from quire.attention.states import LayerStates
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, layout
from quire.models.base import Attend
from quire.models.layers import RMSNorm, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share, TensorShare
from quire.models.rotary import Rotation
from quire.models.states.config import DeltaConfig
from quire.models.states.short_conv import Convolution, float_copy, load_function
from quire.ops.arrays import Array, cast, empty, takes_tensors, widen
from quire.ops.module import Module

_TAPS = 4  #: inputs of the convolution
_TILE = 32  #: columns of a matrix that are stored together


class _GatedDelta(ctypes.Structure):
    """`QuireGatedDelta` in csrc/gated_delta.h."""

    _fields_ = layout(
        "pointer plan states q k v z b a out conv rate dt_bias norm",
        "int64 row_stride key_step value_step z_step gate_stride gate_step num_k_heads num_v_heads k_dim v_dim",
        "float eps",
    )


class GatedDeltaNet(Module):
    """A layer in place of attention. Its inputs are queries, keys, values and z in one product, b and a in another."""

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        assert isinstance(config.state, DeltaConfig)
        self.index, self.delta, hidden = index, config.state, config.hidden_size
        heads = split.state_heads(self.delta.num_key_heads)
        groups = self.delta.num_value_heads // self.delta.num_key_heads
        keys, values = heads.of_size(self.delta.key_dim), heads.of_size(groups * self.delta.value_dim)
        self.num_key_heads, self.groups, self.value_heads = heads.size, groups, heads.of_size(groups)
        channels = Share.joined(keys, keys, values)
        self._is_joint = self.delta.is_interleaved and not self.delta.inputs_apart  # of the first product
        if self._is_joint:
            per_head = 2 * self.delta.key_dim + 2 * groups * self.delta.value_dim
            self.in_proj_qkvz = Linear(hidden, heads.of_size(per_head), bias=False, **factory)
        else:
            parts = {"in_proj_qkv": channels, "in_proj_z": values}
            self.in_proj_qkvz = MergedLinear(hidden, parts, bias=False, **factory)
        self.in_proj_ba: Linear
        if self.delta.is_interleaved:
            self.in_proj_ba = Linear(hidden, heads.of_size(2 * groups), bias=False, **factory)
        else:
            gates = ("in_proj_b", "in_proj_a")
            self.in_proj_ba = MergedLinear(hidden, dict.fromkeys(gates, self.value_heads), bias=False, **factory)
        self.in_proj_ba.is_quantizable = False
        self.conv1d = Convolution(channels, _TAPS, bias=False, **factory)
        self.dt_bias, self.A_log = (empty((self.value_heads.size,), **factory) for _ in range(2))
        self.norm = RMSNorm(self.delta.value_dim, config.norm_eps, **factory)
        self.out_proj = Linear(values, hidden, bias=False, group=split.group, **factory)
        self._weights: list[np.ndarray] = []  # float32 copies

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (heads := self.value_heads).is_whole:
            for vector in ("dt_bias", "A_log"):
                yield f"{name}.{vector}", TensorShare((heads.total,), 0, heads.ranges)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        out = attend(self.index, self.in_proj_qkvz(x), self.in_proj_ba(x), None, self._rule)
        return self.out_proj(select_rows(out, rows))

    def _rule(self, states: LayerStates, x: Array, gates: Array, _: None = None) -> Array:
        """As `StateRule`, for both products."""
        return self._compute(x, gates, states, load_function("quire_gated_delta", x.dtype))

    def _float_weights(self) -> list[np.ndarray]:
        """Return the convolution's weights by tap, rates, dt_bias and the norm's weights."""
        if not self._weights:
            a_log, *others = map(float_copy, (self.A_log, self.dt_bias, self.norm.weight))
            self._weights = [self.conv1d.by_tap(), -np.exp(a_log), *others]
        return self._weights

    def _places(self) -> dict[str, tuple[int, int, int]]:
        """Return by kind of inputs: the first value in its product, values between key heads, and those of one."""
        values, places = self.groups * self.delta.value_dim, dict[str, tuple[int, int, int]]()
        inputs = {"q": self.delta.key_dim, "k": self.delta.key_dim, "v": values, "z": values}
        gates = {"b": self.groups, "a": self.groups}
        for sizes, is_joint in ((inputs, self._is_joint), (gates, self.delta.is_interleaved)):
            first = 0
            for name, size in sizes.items():
                places[name] = first, sum(sizes.values()) if is_joint else size, size
                first += size * (1 if is_joint else self.num_key_heads)
        return places

    @takes_tensors
    def _compute(self, x: np.ndarray, gates: np.ndarray, states: LayerStates, function: Any) -> np.ndarray:
        if function is None:
            return self._reference(x, gates, states)
        x, gates, places, delta = dense_rows(x), dense_rows(gates), self._places(), self.delta
        out, size = new_output((len(x), self.value_heads.size * delta.value_dim), x.dtype), x.itemsize
        parts = [address(gates if name in "ba" else x) + first * size for name, (first, *_) in places.items()]
        steps = (x.strides[0] // size, *(places[name][1] for name in "qvz"), gates.strides[0] // size, places["a"][1])
        sizes = (self.num_key_heads, self.value_heads.size, delta.key_dim, delta.value_dim)
        arrays = (out, *self._float_weights())
        given = (states.plan.address, address(states.memory), *parts, *map(address, arrays))
        call_kernel(function, _GatedDelta(*given, *steps, *sizes, self.norm.eps))
        return out

    def _reference(self, x: np.ndarray, gates: np.ndarray, states: LayerStates) -> np.ndarray:
        """As the kernel, in numpy."""
        conv, rate, dt_bias, norm = self._float_weights()
        keys, heads, key_dim = self.num_key_heads, self.value_heads.size, self.delta.key_dim
        of: dict[str, np.ndarray] = {}
        for name, (first, step, size) in self._places().items():
            places = first + step * np.arange(keys)[:, None] + np.arange(size)
            of[name] = widen(gates if name in "ba" else x)[:, places.ravel()]
        inputs = np.concatenate([of[name] for name in "qkv"], 1)
        beta, decay = _sigmoid(of["b"]), np.exp(rate * np.logaddexp(0, of["a"] + dt_bias))
        out = np.zeros((len(x), heads, self.delta.value_dim // _TILE, _TILE), np.float32)
        for first, end, source, target in states.plan.runs.tolist():
            state = np.zeros(states.memory.shape[1], np.float32) if source < 0 else states.memory[source].copy()
            history, matrix = np.split(state, [(_TAPS - 1) * conv.shape[1]])
            matrix = matrix.reshape(heads, -1, key_dim, _TILE)
            given = np.concatenate((history.reshape(_TAPS - 1, -1), inputs[first:end]))
            for row in range(first, end):
                channels = (given[row - first : row - first + _TAPS] * conv).sum(0)
                qk, v = np.split(channels * _sigmoid(channels), [2 * keys * key_dim])
                q, k = qk.reshape(2, keys, 1, key_dim, 1).repeat(self.groups, 1)
                q, k = (each / np.sqrt((each * each).sum(2, keepdims=True) + np.float32(1e-6)) for each in (q, k))
                matrix *= decay[row, :, None, None, None]
                change = v.reshape(heads, -1, _TILE) - (k * matrix).sum(2)
                matrix += k * (change * beta[row, :, None, None])[:, :, None]
                out[row] = (q * matrix).sum(2) * np.float32(key_dim**-0.5)
            history[:], states.memory[target] = given[1 - _TAPS :].ravel(), state
        y, z = out.reshape(len(x), heads, -1), of["z"].reshape(len(x), heads, -1)
        y *= norm / np.sqrt((y * y).mean(-1, keepdims=True) + np.float32(self.norm.eps)) * z * _sigmoid(z)
        return cast(y.reshape(len(x), -1), x.dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
