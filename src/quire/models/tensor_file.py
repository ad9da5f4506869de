"""Read small safetensors files: adapters and linear maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from quire.models.model_config import ModelConfigError

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def read_tensors(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> dict[str, Tensor]:
    """Read a safetensors file; ModelConfigError if unreadable, damaged, or other than finite floats."""
    content = read_small_file(path, read)
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise wrong_file(path, f"is truncated or no safetensors file ({error})") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise wrong_file(path, f"has {name} in {tensor.dtype}; expected float32, bfloat16 or float16")
        # NaN and infinity survive a sum, which is much cheaper than a check of each value.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise wrong_file(path, f"has values in {name} that are NaN or infinite")
    return tensors


def read_small_file(path: Path, read: Callable[[Path], bytes]) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise wrong_file(path, f"cannot be read: {error.strerror or error}") from None


def wrong_file(path: Path, what: str) -> ModelConfigError:
    return ModelConfigError(f"{path} {what}")
