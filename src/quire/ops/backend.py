"""Which kind of arrays a model computes on."""

from __future__ import annotations

import importlib.util
import os

from quire.kernels.loaded import load_kernels
from quire.ops.arrays import DType, numpy_dtype, torch_dtype

_VARIABLE = "QUIRE_BACKEND"
#: Dtypes of the kernels for a CPU.
KERNEL_DTYPES = ("float32", "bfloat16")


def dtype_for(name: str, device: str) -> DType:
    """Return the dtype of a model's arrays: numpy's where our kernels compute. It is torch's on a GPU, for dtypes
    without kernels, with QUIRE_KERNELS=none, and with QUIRE_BACKEND=torch. ValueError if torch is needed and missing.
    """
    if device == "cpu" and name in KERNEL_DTYPES and os.environ.get(_VARIABLE) != "torch":
        kernels = load_kernels()
        if kernels.functions is not None:
            return numpy_dtype(name)
        why = f"there are no kernels for this CPU ({kernels.reason})"
    elif device == "cpu" and name not in KERNEL_DTYPES:
        why = f"the kernels for CPUs take {' and '.join(KERNEL_DTYPES)}, not {name}"
    else:
        why = f"device={device}" if device != "cpu" else f"{_VARIABLE}=torch"
    if importlib.util.find_spec("torch") is None:
        hint = "choose another dtype, or " if name not in KERNEL_DTYPES else ""
        hint = "install a C++ compiler and run `quire kernels build`, or " if "no kernels" in why else hint
        raise ValueError(f"{why}, and torch is not installed: {hint}pip install 'quire-llm[torch]'")
    return torch_dtype(name)
