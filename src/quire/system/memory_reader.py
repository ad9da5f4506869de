"""The rate at which this machine reads memory."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

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
