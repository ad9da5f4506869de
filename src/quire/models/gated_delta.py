"""Layers with the gated delta rule, which keep a state per sequence instead of KV (csrc/gated_delta.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from quire.attention.states import LayerStates
from quire.kernels.loaded import DTYPES, load_kernels
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, layout
from quire.models.base import Attend
from quire.models.layers import RMSNorm, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share, TensorShare
from quire.models.rotary import Rotation
from quire.ops.arrays import Array, as_numpy, cast, empty, takes_tensors, widen
from quire.ops.module import Module

_TAPS = 4  #: inputs of the convolution
_TILE = 32  #: columns of a matrix that are stored together


class _GatedDelta(ctypes.Structure):
    """`QuireGatedDelta` in csrc/gated_delta.h."""

    _fields_ = layout(
        "pointer plan states q k v z b a out conv conv_bias rate dt_bias norm",
        "int64 row_stride key_step value_step z_step gate_stride gate_step num_k_heads num_v_heads k_dim v_dim",
        "float eps",
    )


class DepthwiseConvolution(Module):
    """The weights of a causal convolution of each channel, [channels, 1, taps]."""

    def __init__(self, channels: Share, **factory: Any) -> None:
        self.channels = channels
        self.weight = empty((channels.size, 1, _TAPS), **factory)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (channels := self.channels).is_whole:
            yield f"{name}.weight", TensorShare((channels.total, 1, _TAPS), 0, channels.ranges)


class GatedDeltaNet(Module):
    """A layer in place of attention. Its inputs are queries, keys, values and z in one product, b and a in another."""

    is_interleaved: ClassVar[bool] = False  #: whether each key head has its rows of a product together

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        assert config.delta is not None
        self.index, self.delta, hidden = index, config.delta, config.hidden_size
        heads, groups = split.key_heads(self.delta.num_key_heads), self.delta.num_value_heads // self.delta.num_key_heads
        keys, values = heads.of_size(self.delta.key_dim), heads.of_size(groups * self.delta.value_dim)
        self.value_heads = gates = heads.of_size(groups)
        self.num_key_heads, self.groups = heads.size, groups
        channels = Share.joined(keys, keys, values)
        if self.is_interleaved:
            per_head = 2 * self.delta.key_dim + 2 * groups * self.delta.value_dim
            self.in_proj_qkvz = Linear(hidden, heads.of_size(per_head), bias=False, **factory)
            self.in_proj_ba = Linear(hidden, heads.of_size(2 * groups), bias=False, **factory)
        else:
            parts = {"in_proj_qkv": channels, "in_proj_z": values}
            self.in_proj_qkvz = MergedLinear(hidden, parts, bias=False, **factory)
            self.in_proj_ba = MergedLinear(hidden, {"in_proj_b": gates, "in_proj_a": gates}, bias=False, **factory)
        self.in_proj_ba.is_quantizable = False
        self.conv1d = DepthwiseConvolution(channels, **factory)
        self.dt_bias, self.A_log = (empty((gates.size,), **factory) for _ in range(2))
        self.norm = RMSNorm(self.delta.value_dim, config.norm_eps, **factory)
        self.out_proj = Linear(values, hidden, bias=False, group=split.group, **factory)
        self._weights: list[np.ndarray] = []  # float32 copies

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (heads := self.value_heads).is_whole:
            share = TensorShare((heads.total,), 0, heads.ranges)
            yield from ((f"{name}.{each}", share) for each in ("dt_bias", "A_log"))

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        out = attend(self.index, self.in_proj_qkvz(x), self.in_proj_ba(x), None, self._rule)
        return self.out_proj(select_rows(out, rows))

    def _rule(self, states: LayerStates, x: Array, gates: Array, _: None = None) -> Array:
        """As `StateRule`, for both products."""
        function = _function(str(x.dtype).removeprefix("torch."), os.environ.get("QUIRE_KERNELS"))
        return self._compute(x, gates, states, function)

    def _float_weights(self) -> list[np.ndarray]:
        """Return the convolution's weights by tap, rates, dt_bias and the norm's weights."""
        if not self._weights:
            weights = [widen(each) for each in (self.conv1d.weight, self.A_log, self.dt_bias, self.norm.weight)]
            conv, a_log, dt_bias, norm = (as_numpy(each) for each in weights)
            self._weights = [np.ascontiguousarray(conv[:, 0].T), -np.exp(a_log), dt_bias, norm]
        return self._weights

    @property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The first value of each kind in a row of its product, and the number of values between key heads."""
        delta, heads, groups = self.delta, self.num_key_heads, self.groups
        sizes = {"q": delta.key_dim, "k": delta.key_dim, "v": groups * delta.value_dim, "z": groups * delta.value_dim}
        places: dict[str, tuple[int, int]] = {}
        for product in (sizes, {"b": groups, "a": groups}):
            first, step = 0, sum(product.values())
            for name, size in product.items():
                places[name] = (first, step) if self.is_interleaved else (first, size)
                first += size if self.is_interleaved else heads * size
        return places

    @takes_tensors
    def _compute(self, x: np.ndarray, gates: np.ndarray, states: LayerStates, function: Any) -> np.ndarray:
        if function is None:
            return self._reference(x, gates, states)
        x, gates, places, delta = dense_rows(x), dense_rows(gates), self._places, self.delta
        out = new_output((len(x), self.value_heads.size * delta.value_dim), x.dtype)
        starts = {
            name: address(gates if name in "ba" else x) + first * x.itemsize for name, (first, _) in places.items()
        }
        conv, rate, dt_bias, norm = map(address, self._float_weights())
        arguments = _GatedDelta(
            plan=states.plan.address,
            states=address(states.memory),
            **starts,
            out=address(out),
            conv=conv,
            rate=rate,
            dt_bias=dt_bias,
            norm=norm,
            row_stride=x.strides[0] // x.itemsize,
            key_step=places["q"][1],
            value_step=places["v"][1],
            z_step=places["z"][1],
            gate_stride=gates.strides[0] // gates.itemsize,
            gate_step=places["a"][1],
            num_k_heads=self.num_key_heads,
            num_v_heads=self.value_heads.size,
            k_dim=delta.key_dim,
            v_dim=delta.value_dim,
            eps=self.norm.eps,
        )
        call_kernel(function, arguments)
        return out

    def _heads(self, product: np.ndarray, name: str, num_heads: int, size: int) -> np.ndarray:
        """Return a kind of inputs by head: float32 [num_tokens, num_heads, size]."""
        first, step = self._places[name]
        product = np.ascontiguousarray(widen(product))
        shape, own = (len(product), self.num_key_heads, num_heads // self.num_key_heads * size), product[:, first:]
        strides = (product.strides[0], step * product.itemsize, product.itemsize)
        return np.lib.stride_tricks.as_strided(own, shape, strides).reshape(len(product), num_heads, size)

    def _reference(self, x: np.ndarray, gates: np.ndarray, states: LayerStates) -> np.ndarray:
        """As the kernel, in numpy."""
        conv, rate, dt_bias, norm = self._float_weights()
        delta, keys, heads = self.delta, self.num_key_heads, self.value_heads.size
        sizes = {"q": (keys, delta.key_dim), "k": (keys, delta.key_dim), "v": (heads, delta.value_dim)}
        inputs = np.concatenate([self._heads(x, name, *size).reshape(len(x), -1) for name, size in sizes.items()], 1)
        beta = _sigmoid(self._heads(gates, "b", heads, 1))
        decay = np.exp(rate[:, None] * np.logaddexp(0, self._heads(gates, "a", heads, 1) + dt_bias[:, None]))
        out = np.zeros((len(x), heads, delta.value_dim), np.float32)
        num_history = (_TAPS - 1) * conv.shape[1]
        for first, end, source, target in states.plan.runs.tolist():
            state = np.zeros(states.memory.shape[1], np.float32) if source < 0 else states.memory[source].copy()
            history, tiles = state[:num_history].reshape(_TAPS - 1, -1), self._tiles(state[num_history:])
            matrix, given = np.concatenate(tiles, -1), np.concatenate((history, inputs[first:end]))
            for row in range(first, end):
                channels = (given[row - first : row - first + _TAPS] * conv).sum(0)
                channels *= _sigmoid(channels)
                q, k = channels[: 2 * keys * delta.key_dim].reshape(2, keys, delta.key_dim).repeat(self.groups, 1)
                q, k = (each / np.sqrt((each * each).sum(-1, keepdims=True) + np.float32(1e-6)) for each in (q, k))
                matrix *= decay[row, :, None]
                v = channels[2 * keys * delta.key_dim :].reshape(heads, delta.value_dim)
                change = (v - (k[:, :, None] * matrix).sum(1)) * beta[row]
                matrix += k[:, :, None] * change[:, None]
                out[row] = (q[:, :, None] * matrix).sum(1) * np.float32(delta.key_dim**-0.5)
            history[:] = given[-history.shape[0] :]
            for place, tile in enumerate(tiles):
                tile[:] = matrix[..., place * _TILE :][..., : tile.shape[-1]]
            states.memory[target] = state
        z = self._heads(x, "z", heads, delta.value_dim)
        out *= norm / np.sqrt((out * out).mean(-1, keepdims=True) + np.float32(self.norm.eps)) * z * _sigmoid(z)
        return cast(out.reshape(len(x), -1), x.dtype)

    def _tiles(self, matrices: np.ndarray) -> list[np.ndarray]:
        """Return views of the columns of all matrices that are stored together: [num_heads, key_dim, columns]."""
        rows, columns = self.delta.key_dim, self.delta.value_dim
        matrices = matrices.reshape(self.value_heads.size, -1)
        parts = [matrices[:, at * rows : min(at + _TILE, columns) * rows] for at in range(0, columns, _TILE)]
        return [part.reshape(len(part), rows, -1) for part in parts]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@functools.cache
def _function(dtype: str, level: str | None) -> Any:
    """Return this process's kernel, or None."""
    library = load_kernels().functions
    if library is None or dtype not in DTYPES:
        return None
    function = library[f"quire_gated_delta_{dtype}"]
    function.restype = None
    return function
