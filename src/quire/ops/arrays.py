"""Arrays of two kinds: numpy's, in main memory, and torch's tensors, on a GPU or where torch is the reference.

A dtype tells the kind: `np.dtype` (bfloat16 is `ml_dtypes`') or `torch.dtype`. Both kinds share `shape`, `dtype`,
`nbytes`, `reshape`, indexing and arithmetic; what they do not share is here.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import ml_dtypes
import numpy as np

from quire.kernels.conversion import DTYPES, conversions
from quire.kernels.recorder import RecordedArray
from quire.system.pages import new_empty
from quire.system.threads import threads_for

Array: TypeAlias = Any  #: np.ndarray or torch.Tensor
DType: TypeAlias = Any  #: np.dtype or torch.dtype

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)

#: Native floats that kernels convert, but not to float64.
_FLOATS = {np.dtype(name) if name != "bfloat16" else BFLOAT16: name for name in DTYPES}
_FEW = 2048  #: up to this many elements, numpy converts faster than a call to a kernel takes

P = ParamSpec("P")
T = TypeVar("T")


def is_numpy(x: Array | DType) -> bool:
    """Return whether an array or a dtype is numpy's."""
    return isinstance(x, np.ndarray | np.dtype)


def is_on_host(x: Array) -> bool:
    """Return whether an array is in main memory."""
    return isinstance(x, np.ndarray) or x.device.type == "cpu"


def numpy_dtype(name: str) -> np.dtype:
    """Return numpy's dtype of a name such as bfloat16."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def torch_dtype(name: str) -> DType:
    """Return torch's dtype of a name."""
    import torch

    return getattr(torch, name)


def name_of(dtype: DType) -> str:
    """Return a dtype's name, such as bfloat16."""
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")


def empty(shape: Sequence[int], dtype: DType, device: str = "cpu") -> Array:
    """Return an uninitialized array; on the device "meta", one that has a shape but no memory."""
    if not isinstance(dtype, np.dtype):
        import torch

        if device == "cpu":
            return as_tensor(new_empty(shape, numpy_dtype(name_of(dtype))))
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    if device == "meta":
        return np.broadcast_to(np.zeros((), dtype), tuple(shape))
    if device != "cpu":
        raise ValueError(f"numpy has no arrays on {device}")
    return new_empty(shape, dtype)


def as_numpy(tensor: Array) -> np.ndarray:
    """Return the same memory as a numpy array. A tensor must be in main memory."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if name_of(tensor.dtype) == "bfloat16":
        return as_numpy(tensor.detach().view(torch_dtype("int16"))).view(BFLOAT16)
    return np.asarray(tensor.detach().numpy())


def to_host(x: Array) -> np.ndarray:
    """Return an array in main memory as numpy's: the same memory if it is there already."""
    return x if isinstance(x, np.ndarray) else as_numpy(x.cpu())


def as_tensor(array: Array) -> Array:
    """Return the same memory as a tensor."""
    if not isinstance(array, np.ndarray):
        return array
    import torch

    if isinstance(array, RecordedArray):
        array.note("a tensor")
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def like(x: np.ndarray, other: Array) -> Array:
    """Return an array as one of the kind of another, in main memory."""
    return x if isinstance(other, np.ndarray) else as_tensor(x)


def assign(view: Array, values: np.ndarray) -> None:
    """Copy values of any float dtype into a view of either kind."""
    if isinstance(view, np.ndarray):
        view[...] = values
    else:
        view.copy_(as_tensor(values))


def takes_tensors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function (or method) of numpy arrays take tensors in main memory too; it then returns tensors."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        first = args[0] if hasattr(args[0], "nbytes") else args[1]
        if isinstance(first, np.ndarray):
            return function(*args, **kwargs)
        numpy: Any = function
        result: Any = numpy(*map(_as_given, args), **{name: _as_given(each) for name, each in kwargs.items()})
        result = tuple(map(as_tensor, result)) if isinstance(result, tuple) else as_tensor(result)
        return typing.cast(T, result)

    return call


def _as_given(each: Any) -> Any:
    return as_numpy(each) if type(each).__module__ == "torch" else each


def cast(x: Array, dtype: DType) -> Array:
    """Return x in a dtype of its kind, rounded to nearest even; x itself if it has it."""
    if hasattr(x, "is_cuda"):  # a tensor
        return x.to(dtype)
    if x.dtype == dtype or x.size <= _FEW:
        return x.astype(dtype, copy=False)
    out = new_empty(x.shape, dtype)
    copy_to(out, x)
    return out


def copy_to(view: np.ndarray, x: np.ndarray) -> None:
    """Write x into an array of its shape, converted to that dtype."""
    kernels = conversions() if x.size > _FEW and x.dtype != view.dtype and x.shape == view.shape else None
    dtype, to = _FLOATS.get(x.dtype), _FLOATS.get(view.dtype)
    if kernels is None or dtype is None or to in (None, "float64") or not view.flags.carray:
        view[...] = x
        return
    x = np.ascontiguousarray(x)
    kernels.convert(x.ctypes.data, dtype, view.ctypes.data, to, x.size, threads_for(x.size))


def widen(x: Array) -> Array:
    """Return floats as float32, a copy unless they are."""
    return x.float() if hasattr(x, "is_cuda") else cast(x, FLOAT32)


def is_finite(x: np.ndarray) -> bool:
    """Return whether no value is NaN or infinite."""
    kernels, dtype = conversions() if x.size > _FEW else None, _FLOATS.get(x.dtype)
    if kernels is None or dtype is None:
        return bool(np.isfinite(x).all())
    x = np.ascontiguousarray(x)
    return kernels.is_finite(x.ctypes.data, dtype, x.size, threads_for(x.size))
