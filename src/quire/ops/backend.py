"""Which kind of arrays a model computes on."""

from __future__ import annotations

import importlib.util
import os

from quire.kernels.loaded import DTYPES, load_kernels
from quire.ops.arrays import DType, numpy_dtype, torch_dtype

_VARIABLE = "QUIRE_BACKEND"


def dtype_for(name: str, device: str) -> DType:
    """Return the dtype of a model's arrays: numpy's where our kernels compute. It is torch's on a GPU, for dtypes
    without kernels, with QUIRE_KERNELS=none, and with QUIRE_BACKEND=torch. ValueError if torch is needed and missing.
    """
    if device != "cpu":
        why, fix = f"device={device}", "use device=cpu"
    elif name not in DTYPES:
        why, fix = f"the CPU kernels do not take dtype={name}", f"use {' or '.join(DTYPES)}"
    elif os.environ.get(_VARIABLE) == "torch":
        why, fix = f"{_VARIABLE}=torch", f"unset {_VARIABLE}"
    else:
        kernels = load_kernels()
        if kernels.functions is not None:
            return numpy_dtype(name)
        why, fix = f"there are no CPU kernels ({kernels.reason})", kernels.fix
    if importlib.util.find_spec("torch") is None:
        raise ValueError(f"{why}, and torch is not installed: {fix}, or pip install 'quire-llm[torch]'")
    return torch_dtype(name)
