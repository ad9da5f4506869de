"""Choose an engine's device. Without a GPU, this imports no torch."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec

logger = logging.getLogger("quire")

#: Devices of NVIDIA's driver, of its Jetson boards, of WSL and of AMD's driver.
_GPU_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")
_INSTALL = "pip install 'quire-llm[torch]'"


def choose_device(name: str) -> str:
    """Resolve auto to cuda or cpu. ValueError for cuda without torch or a CUDA device."""
    if name == "auto":
        return "cuda" if any(map(os.path.exists, _GPU_FILES)) and _num_gpus() else "cpu"
    if name == "cuda" and not _num_gpus():
        found = "torch finds no CUDA device" if find_spec("torch") else "torch is not installed"
        raise ValueError(f"device=cuda, but {found}; use device=cpu, or a torch build with CUDA: {_INSTALL}")
    return name


def check_devices(name: str, num_ranks: int) -> None:
    """Raise ValueError if ranks on this machine need more GPUs than it has."""
    if choose_device(name) == "cuda" and (found := _num_gpus()) < num_ranks:
        raise ValueError(
            f"tensor_parallel_size={num_ranks} needs as many CUDA devices, and torch finds {found}; lower it, or use "
            "device=cpu"
        )


def _num_gpus() -> int:
    """Return the number of CUDA devices that torch finds; 0 without torch."""
    if find_spec("torch") is None:
        logger.info("device: there may be a GPU, but torch is not installed: %s", _INSTALL)
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
