"""Small safetensors files that come with a stage, read whole: adapters and linear maps."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from quire.models.model_config import ModelConfigError

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, which is read at once: a file that shrinks later does no harm.

    Raises:
        ModelConfigError: it cannot be read, is no safetensors file, or holds what is no finite float.
    """
    try:
        tensors = load(path.read_bytes())
    except OSError as error:
        raise wrong_file(path, f"cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise wrong_file(path, f"is cut off or no safetensors file ({error})") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise wrong_file(path, f"has {name} in {tensor.dtype}; expected float32, bfloat16 or float16")
        if not torch.isfinite(tensor).all():
            raise wrong_file(path, f"has values in {name} that are NaN or infinite")
    return tensors


def wrong_file(path: Path, what: str) -> ModelConfigError:
    return ModelConfigError(f"{path} {what}")
