"""The operations of models between products: for numpy, by our kernels, and for torch (`on_torch.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from quire.kernels.conversion import conversions
from quire.kernels.elementwise import Elementwise, elementwise
from quire.kernels.loaded import uses_triton
from quire.kernels.recorder import new_output
from quire.kernels.structure import address, dense, dense_rows
from quire.ops.arrays import FLOAT32, Array, cast, is_on_host, name_of, takes_tensors, widen
from quire.system.threads import threads_for

#: Activations by their names in a config.json.
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


def operation(function: Callable[..., np.ndarray]) -> Callable[..., Array]:
    """Make a function of numpy arrays take tensors too: by the same kernels in main memory, and by its namesake in
    `on_triton` or `on_torch` on other devices or without kernels. Its first argument is an array."""

    on_host = takes_tensors(function)

    @functools.wraps(function)
    def call(x: Array, *args: Any) -> Array:
        if isinstance(x, np.ndarray):
            return function(x, *args)
        if is_on_host(x) and elementwise(name_of(x.dtype)) is not None:
            return on_host(x, *args)
        return _of_tensors(function.__name__, x.device.type)(x, *args)

    return call


@functools.cache
def _of_tensors(name: str, device: str) -> Callable[..., Array]:
    from quire.ops import on_torch

    if uses_triton(device):
        from quire.ops import on_triton

        if name in vars(on_triton):
            return getattr(on_triton, name)
    return getattr(on_torch, name)


def _kernels(x: np.ndarray) -> Elementwise:
    kernels = elementwise(x.dtype.name)
    if kernels is None:
        raise ValueError(f"there are no kernels for {x.dtype.name} in numpy's arrays")
    return kernels


@operation
def rms_norm(
    y: np.ndarray, weight: np.ndarray, eps: float, offset: float = 0.0, x: np.ndarray | None = None
) -> np.ndarray:
    """Compute y / rms(y) * (weight + offset), [num_tokens, size], in float32 inside. With x, add it to y in place
    before."""
    assert x is None or y.flags.c_contiguous
    y, x = dense(y), None if x is None else dense(x)
    out = new_output(y.shape, y.dtype)
    size = y.shape[-1]
    threads = threads_for(y.size)
    pointers = (None if x is None else address(x), *map(address, (y, weight, out)))
    _kernels(y).run("norm", *pointers, y.size // size, size, eps, offset, threads)
    return out


@operation
def norm_heads(x: np.ndarray, start: int, num_heads: int, eps: float) -> np.ndarray:
    """Compute h / rms(h) of some heads h of x, [num_tokens, heads, dim]: [num_tokens, num_heads, dim]."""
    x = dense(x)
    num_tokens, total, dim = x.shape
    out = new_output((num_tokens, num_heads, dim), x.dtype)
    threads = threads_for(out.size)
    first = address(x) + start * dim * x.itemsize
    _kernels(x).run("norm_heads", first, address(out), num_tokens, total * dim, num_heads, dim, eps, threads)
    return out


@operation
def rotate_heads(
    qkv: np.ndarray,
    cosines: np.ndarray | None,
    sines: np.ndarray | None,
    query_scale: np.ndarray | None,
    num_query_heads: int,
    num_key_heads: int,
    query_weight: np.ndarray | None,
    key_weight: np.ndarray | None,
    eps: float,
    offset: float,
    is_interleaved: bool,
    query_step: int = 1,
) -> np.ndarray:
    """Norm the query and key heads of qkv, [num_tokens, heads, dim], if there are weights, less `offset`: of one head,
    or of all query heads and all key heads. Rotate the first rotary_dim features of each: the pairs (i, i +
    rotary_dim / 2), or interleaved (2i, 2i + 1), by the token's angles, [num_tokens, 1, rotary_dim]. The first half of
    `sines` is negated; None rotates nothing. `query_scale`, [num_tokens], multiplies queries. Each `query_step`-th head
    is a query. Works in place if it can."""
    qkv = dense(qkv)
    num_tokens, num_heads, dim = qkv.shape
    given = (cosines, sines, query_weight, key_weight, query_scale)
    pointers = (None if each is None else address(each) for each in given)
    rotary_dim = 0 if cosines is None else cosines.shape[-1]
    sizes = (num_tokens, num_heads * dim, num_query_heads, num_key_heads, dim, rotary_dim)
    flags = (is_interleaved, query_weight is not None and len(query_weight) > dim, threads_for(qkv.size), query_step)
    _kernels(qkv).run("rotate", address(qkv), *sizes, *pointers, eps, offset, *flags)
    return qkv


@operation
def norm_latents(
    queries: np.ndarray, keys: np.ndarray, weight: np.ndarray, cosines: np.ndarray, sines: np.ndarray, eps: float,
    is_interleaved: bool,
) -> np.ndarray:  # fmt: skip
    """Norm the latents of keys, [num_tokens, latent_dim + rotary_dim], and rotate the last rotary_dim features of keys
    and queries, [num_tokens, num_heads, dim], as `rotate_heads` does. Works in place and returns the queries."""
    assert queries.flags.c_contiguous
    assert keys.flags.c_contiguous
    num_tokens, num_heads, dim = queries.shape
    sizes = (num_tokens, num_heads, dim, len(weight), cosines.shape[-1])
    pointers = (address(each) for each in (weight, cosines, sines))
    threads = threads_for(queries.size)
    _kernels(queries).run("latents", address(queries), address(keys), *sizes, *pointers, eps, is_interleaved, threads)
    return queries


@operation
def layer_norm(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
    """Compute (x - mean) / std * weight + bias of rows, [num_tokens, size], in float32 inside."""
    x = dense(x)
    out = new_output(x.shape, x.dtype)
    size = x.shape[-1]
    parameters = (None if each is None else address(each) for each in (weight, bias))
    threads = threads_for(x.size)
    _kernels(x).run("layer_norm", None, address(x), *parameters, address(out), x.size // size, size, eps, threads)
    return out


@operation
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute x + y, of one shape."""
    return _map("add", x, y)


@operation
def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute x * y, of one shape."""
    return _map("multiply", x, y)


@operation
def scale(x: np.ndarray, factor: float) -> np.ndarray:
    """Compute x * factor; x itself for 1."""
    return x if factor == 1 else _map("scale", x, None, factor)


@operation
def cap(x: np.ndarray, most: float) -> np.ndarray:
    """Compute most * tanh(x / most); x itself for 0."""
    return _map("cap", x, None, most) if most else x


@operation
def gate(x: np.ndarray) -> np.ndarray:
    """Compute silu(g) * u of rows (g, u): [num_tokens, 2 * size] -> [num_tokens, size]."""
    x = dense(x)
    rows, size = len(x), x.shape[-1] // 2
    out = new_output((rows, size), x.dtype)
    _kernels(x).run("gate", address(x), address(out), rows, size, threads_for(x.size))
    return out


@operation
def gated_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute silu(x) * y, [num_tokens, size]."""
    return _map("multiply", _map("silu", x, None), y)


@operation
def gate_heads(x: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """Compute x * sigmoid(gates), [num_tokens, num_heads, dim]."""
    x, gates = dense(x), dense_rows(gates)
    out = new_output(x.shape, x.dtype)
    strides = (stride // gates.itemsize for stride in gates.strides[:2])
    _kernels(x).run("gate_heads", *map(address, (x, gates, out)), *x.shape, *strides, threads_for(x.size))
    return out


@operation
def activate(x: np.ndarray, name: str) -> np.ndarray:
    """Compute silu, relu, gelu (by erf) or gelu_tanh of each value, in float32 inside."""
    return _map(name, x, None)


def _map(name: str, x: np.ndarray, y: np.ndarray | None, factor: float = 1.0) -> np.ndarray:
    x, y = dense(x), None if y is None else dense(y)
    assert y is None or x.shape == y.shape
    out = new_output(x.shape, x.dtype)
    second = None if y is None else address(y)
    _kernels(x).run(name, address(x), second, address(out), x.size, factor, threads_for(x.size))
    return out


@operation
def to_float32(x: np.ndarray) -> np.ndarray:
    """Convert to float32, as part of a pass; x itself if it is."""
    if x.dtype == FLOAT32:
        return x
    x, kernels = dense(x), conversions()
    assert kernels is not None
    out = new_output(x.shape, FLOAT32)
    kernels.widen(address(x), x.dtype.name, address(out), x.size, threads_for(x.size))
    return out


@operation
def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Compute x W^T + b with a plain W, [out_features, in_features]; models pack theirs."""
    y = widen(x) @ widen(weight).T
    return cast(y if bias is None else y + widen(bias), x.dtype)
