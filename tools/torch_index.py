"""Which index `make` takes torch from: prints its URL, or nothing for pip's own, and says which on stderr.
With --why, prints why this machine computes with torch, or nothing if it does not.

pip's torch for Linux brings gigabytes of CUDA, which a machine without an NVIDIA GPU has no use for.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIPS_OWN = "pip's own index"
BUILD = Path(__file__).parents[1] / "src" / "quire" / "kernels" / "build.py"


def choose(given: Mapping[str, str], *, has_cuda_build: bool, has_gpu: bool) -> tuple[str, str]:
    """The index, empty for pip's own, and why that one."""
    if (index := given.get("TORCH_INDEX_URL")) is not None:
        return index, f"torch comes from {index or PIPS_OWN}, as TORCH_INDEX_URL says"
    if not has_cuda_build:
        return "", f"torch comes from {PIPS_OWN}, whose build for this system is small"
    if has_gpu:
        return "", f"torch comes from {PIPS_OWN}, with CUDA for this machine's NVIDIA GPU"
    if is_reachable(CPU_INDEX):
        return CPU_INDEX, f"there is no NVIDIA GPU: torch comes from {CPU_INDEX} (TORCH_INDEX_URL= takes pip's own)"
    return "", f"torch comes from {PIPS_OWN}, with CUDA: {CPU_INDEX} cannot be reached"


def why_torch(*, has_gpu: bool, has_kernels: bool) -> str:
    """Why Quire needs torch here; empty where its own kernels compute."""
    if has_gpu:
        return "There is an NVIDIA GPU: torch computes on it"
    if not has_kernels:
        return "There are no CPU kernels: torch computes, more slowly (`quire kernels build` makes them with g++)"
    return ""


def is_reachable(index: str, within_s: float = 5.0) -> bool:
    """Whether it answers soon. Looking its name up may hang for longer than any timeout of a connection."""
    answered = threading.Event()

    def ask() -> None:
        with suppress(OSError), urlopen(f"{index}/torch/", timeout=within_s):
            answered.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(within_s)
    return answered.is_set()


if __name__ == "__main__":
    has_gpu = shutil.which("nvidia-smi") is not None or os.path.exists("/dev/nvidia0")
    if sys.argv[1:] == ["--why"]:
        generic: Path = runpy.run_path(str(BUILD))["library_path"]("generic")
        print(why_torch(has_gpu=has_gpu, has_kernels=generic.exists()))
        sys.exit()
    url, why = choose(os.environ, has_cuda_build=sys.platform == "linux", has_gpu=has_gpu)
    print(why, file=sys.stderr)
    print(url)
