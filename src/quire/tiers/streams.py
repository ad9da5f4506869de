"""The stream of a link's copies on a CPU, where they are immediate. `quire.tiers.cuda` has that of a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Copies = Callable[[], None]
Done = Callable[[], float]  #: waits until copies are done, and returns their seconds


class CpuStream:
    """The interface of `CudaStream` with synchronous copies."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def new_staging(self, num_blocks: int, block_bytes: int) -> np.ndarray:
        return np.empty((num_blocks, block_bytes), np.uint8)

    def before_work(self, copies: Copies) -> Done:
        return self.after(None, copies)

    def now(self) -> None:
        return None

    def after(self, point: object, copies: Copies) -> Done:
        started = self._clock()
        copies()
        took_s = self._clock() - started
        return lambda: took_s
