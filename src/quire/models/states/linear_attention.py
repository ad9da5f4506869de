"""Layers whose state is a matrix per head (csrc/linear_attention.h), between their linear projections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from quire.attention.states import LayerStates
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, structure
from quire.models.layers import RMSNorm
from quire.models.linear.layer import Linear
from quire.models.model_config import ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share, TensorShare
from quire.models.states.config import MatrixConfig
from quire.models.states.short_conv import Convolution, float_copy, load_function
from quire.ops.arrays import Array, cast, empty, takes_tensors, widen
from quire.ops.module import Module

_TAPS = 4  #: inputs of the convolution
_TILE = 32  #: columns of a matrix that are stored together

_LinearAttention = structure(
    "QuireLinearAttention",
    "pointer plan states q k v z b a out conv conv_bias rate dt_bias skip norm",
    "int64 row_stride key_step value_step z_step gate_stride gate_step num_k_heads num_v_heads k_dim v_dim",
    "float eps",
)  # csrc/linear_attention.h


class LinearAttention(Module):
    """A layer in place of attention. Subclasses have the projections of its inputs, one or two: queries, keys, values
    and z, and the gates b and a, or a alone."""

    kernel_name: ClassVar[str]
    vectors: ClassVar[tuple[str, ...]] = ("dt_bias", "A_log")  #: weights, one for each value head
    dt_bias: Array
    A_log: Array
    norm: RMSNorm

    def __init__(
        self, config: ModelConfig, split: ModelSplit, index: int, keys: Share, values: Share, **factory: Any
    ) -> None:
        """`keys` and `values`: this rank's key and value heads."""
        assert isinstance(config.state, MatrixConfig)
        self.index, self.size, self.value_heads = index, config.state, values
        self.num_key_heads, self.groups = keys.size, values.size // keys.size
        self.keys, self.values = keys.of_size(self.size.key_dim), values.of_size(self.size.value_dim)
        for vector in self.vectors:
            setattr(self, vector, empty((values.size,), **factory))
        self.conv1d = Convolution(self.channels, _TAPS, bias=self.size.has_conv_bias, **factory)
        self.out_proj = Linear(self.values, config.hidden_size, bias=False, group=split.group, **factory)
        self._weights: list[np.ndarray | None] = []  # float32 copies

    @property
    def channels(self) -> Share:
        """The convolution's channels, in the checkpoint's order."""
        return Share.joined(self.keys, self.keys, self.values)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not (heads := self.value_heads).is_whole:
            for vector in self.vectors:
                yield f"{name}.{vector}", TensorShare((heads.total,), 0, heads.ranges)

    def _rule(self, states: LayerStates | Any, x: Array, gates: Array | None, _: None = None) -> Array:
        """As `StateRule`, for the products."""
        if not isinstance(states, LayerStates):
            from quire.models.states import on_triton  # imports torch and Triton

            return on_triton.linear_attention(self, states, x, gates)
        return self._compute(x, gates, states, load_function(self.kernel_name, x.dtype))

    def float_weights(self) -> Mapping[str, Array | None]:
        """Return weights by the kernel's names: conv, conv_bias, rate, dt_bias, skip and norm."""
        rate = -np.exp(float_copy(self.A_log))
        return {"conv": self.conv1d.by_tap(), "conv_bias": None, "rate": rate, "dt_bias": self.dt_bias, "skip": None,
                "norm": self.norm.weight}  # fmt: skip

    def _float_weights(self) -> list[Any]:
        if not self._weights:
            self._weights = [None if each is None else float_copy(each) for each in self.float_weights().values()]
        return self._weights

    def places(self) -> dict[str, tuple[int, int, int]]:
        """Return by kind of inputs: the first value in its product, values between key heads, and those of one."""
        raise NotImplementedError

    def _places(self, sizes: Mapping[str, int], is_joint: bool = False) -> dict[str, tuple[int, int, int]]:
        """Return `places` in a product, for sizes of the inputs of one key head, which are together in a joint one."""
        places, first = dict[str, tuple[int, int, int]](), 0
        for name, size in sizes.items():
            places[name] = first, sum(sizes.values()) if is_joint else size, size
            first += size * (1 if is_joint else self.num_key_heads)
        return places

    @takes_tensors
    def _compute(self, x: np.ndarray, gates: np.ndarray | None, states: LayerStates, function: Any) -> np.ndarray:
        x = dense_rows(x)
        gates = x if gates is None else dense_rows(gates)
        if function is None:
            return self._reference(x, gates, states)
        places, size = self.places(), x.itemsize
        out = new_output((len(x), self.values.size), x.dtype)
        parts = [
            None if name not in places else address(gates if name in "ba" else x) + places[name][0] * size
            for name in "qkvzba"
        ]
        steps = (x.strides[0] // size, *(places[name][1] for name in "qvz"), gates.strides[0] // size, places["a"][1])
        sizes = (self.num_key_heads, self.value_heads.size, self.size.key_dim, self.size.value_dim)
        weights = [None if each is None else address(each) for each in self._float_weights()]
        given = (states.plan.address, address(states.memory), *parts, address(out), *weights)
        call_kernel(function, _LinearAttention(*given, *steps, *sizes, self.norm.eps))
        return out

    def _reference(self, x: np.ndarray, gates: np.ndarray, states: LayerStates) -> np.ndarray:
        """As the kernel, in numpy."""
        conv, conv_bias, rate, dt_bias, skip, norm = self._float_weights()
        keys, heads, key_dim = self.num_key_heads, self.value_heads.size, self.size.key_dim
        of: dict[str, np.ndarray] = {}
        for name, (first, step, size) in self.places().items():
            places = first + step * np.arange(keys)[:, None] + np.arange(size)
            of[name] = widen(gates if name in "ba" else x)[:, places.ravel()]
        inputs, steps = np.concatenate([of[name] for name in "qkv"], 1), np.logaddexp(0, of["a"] + dt_bias)
        weight, decay = sigmoid(of["b"]) if "b" in of else steps, np.exp(rate * steps)
        out = np.zeros((len(x), heads, self.size.value_dim // _TILE, _TILE), np.float32)
        for first, end, source, target in states.plan.runs.tolist():
            state = np.zeros(states.memory.shape[1], np.float32) if source < 0 else states.memory[source].copy()
            history, matrix = np.split(state, [(_TAPS - 1) * conv.shape[1]])
            matrix = matrix.reshape(heads, -1, key_dim, _TILE)
            given = np.concatenate((history.reshape(_TAPS - 1, -1), inputs[first:end]))
            for row in range(first, end):
                channels = (given[row - first : row - first + _TAPS] * conv).sum(0)
                channels += 0 if conv_bias is None else conv_bias
                qk, v = np.split(channels * sigmoid(channels), [2 * keys * key_dim])
                q, k = qk.reshape(2, keys, 1, key_dim, 1).repeat(self.groups, 1)
                factors = decay[row, :, None, None, None], weight[row, :, None, None]
                out[row] = self.update(matrix, q, k, v.reshape(heads, -1, _TILE), *factors)
                if skip is not None:
                    out[row] += skip[:, None, None] * v.reshape(heads, -1, _TILE)
            history[:], states.memory[target] = given[1 - _TAPS :].ravel(), state
        y, z = out.reshape(len(x), heads, -1), of["z"].reshape(len(x), heads, -1)
        return cast(self.finish(y, z * sigmoid(z), norm).reshape(len(x), -1), x.dtype)

    def update(
        self, matrix: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        """Update S of all heads, [heads, tiles, key_dim, 32], by a token, and return its output, of v's shape."""
        raise NotImplementedError

    def finish(self, o: np.ndarray, z: np.ndarray, norm: np.ndarray | None) -> np.ndarray:
        """Norm and gate outputs o, [num_rows, heads, value_dim], with silu(z)."""
        raise NotImplementedError


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def rms(x: np.ndarray, eps: float) -> np.ndarray:
    """Return the root of the last dimension's mean square."""
    return np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
