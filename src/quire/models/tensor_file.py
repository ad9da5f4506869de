"""Read the small files of adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from quire.models.model_config import ModelConfigError
from quire.ops.arrays import is_finite, numpy_dtype

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_KINDS = {"F": "float", "I": "int", "U": "uint"}


def read_tensors(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> dict[str, np.ndarray]:
    """Read a safetensors file; ModelConfigError if unreadable, damaged, or other than finite floats."""
    content = read_small_file(path, read)
    try:
        found = deserialize(content)
    except SafetensorError as error:
        raise wrong_file(path, f"is truncated or no safetensors file ({error})") from None
    tensors = {}
    for name, each in found:
        if (dtype := _DTYPES.get(stored := each["dtype"])) is None:
            stored = _KINDS.get(stored[0], stored[0]) + stored[1:]
            raise wrong_file(path, f"has {name} in {stored}; expected float32, bfloat16 or float16")
        tensors[name] = np.frombuffer(each["data"], numpy_dtype(dtype)).reshape(each["shape"])
        if not is_finite(tensors[name]):
            raise wrong_file(path, f"has values in {name} that are NaN or infinite")
    return tensors


def read_small_file(path: Path, read: Callable[[Path], bytes]) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise wrong_file(path, f"cannot be read: {error.strerror or error}") from None


def wrong_file(path: Path, what: str) -> ModelConfigError:
    return ModelConfigError(f"{path} {what}")
