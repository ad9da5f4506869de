"""The rate at which this machine reads memory, and random operands of products. Neither needs torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np

from quire.ops.arrays import Array, DType, as_tensor, is_numpy, name_of, numpy_dtype
from quire.system.pages import new_empty
from quire.system.threads import num_threads

_READ_BYTES = 2**28


class MemoryReader:
    """Memory that as many threads as the kernels have read at once."""

    def __init__(self) -> None:
        memory = new_empty((_READ_BYTES // 4,), np.dtype(np.int32))
        memory.fill(1)  # memory that was never written would be one page of zeros
        self._parts = np.array_split(memory, num_threads())
        self._threads = ThreadPoolExecutor(len(self._parts))

    def measure(self) -> float:
        """Read it once. Returns bytes per second."""
        started = time.perf_counter()
        list(self._threads.map(np.max, self._parts))
        return _READ_BYTES / (time.perf_counter() - started)


def random_array(shape: Sequence[int], dtype: DType) -> Array:
    """Return normal numbers in an array of the dtype's kind."""
    values = np.random.default_rng(0).standard_normal(shape, np.float32).astype(numpy_dtype(name_of(dtype)))
    return values if is_numpy(dtype) else as_tensor(values)


def check_torch(purpose: str) -> None:
    """Raise ValueError if torch is not installed."""
    if find_spec("torch") is None:
        raise ValueError(f"{purpose} needs torch: pip install 'quire-llm[torch]'")
