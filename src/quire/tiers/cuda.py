"""Streams and pinned memory of a link to a GPU. Only links of a GPU import this file, and with it torch."""

from __future__ import annotations

import weakref

import numpy as np
import torch

from quire.tiers.streams import Copies, Done


class CudaStream:
    """A stream beside the model's. Copies run in order. Thread-safe."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def new_staging(self, num_blocks: int, block_bytes: int) -> torch.Tensor:
        """Return pinned uint8 `[num_blocks, block_bytes]`, which torch reuses only after queued copies of it."""
        return torch.empty((num_blocks, block_bytes), dtype=torch.uint8, pin_memory=True)

    def before_work(self, copies: Copies) -> Done:
        """Copy after the work that the calling thread has queued on the device, and before its later work."""
        done, ended = self._queue(self.now(), copies)
        torch.cuda.current_stream(self._stream.device).wait_event(ended)
        return done

    def now(self) -> torch.cuda.Event:
        """The current end of the calling thread's queued work, for `after`."""
        point = torch.cuda.Event()
        point.record(torch.cuda.current_stream(self._stream.device))
        return point

    def after(self, point: object, copies: Copies) -> Done:
        """Copy once the device has reached this point, concurrently with later work."""
        assert isinstance(point, torch.cuda.Event)
        return self._queue(point, copies)[0]

    def _queue(self, point: torch.cuda.Event, copies: Copies) -> tuple[Done, torch.cuda.Event]:
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            self._stream.wait_event(point)
            started.record()
            copies()
            ended.record()

        def done() -> float:
            ended.synchronize()
            return started.elapsed_time(ended) / 1e3

        return done, ended


def pin(memory: np.ndarray, owner: object) -> None:
    """Pin memory until its owner is collected. (torch would round up to a power of two.)"""
    cuda = torch.cuda.cudart()
    address = memory.ctypes.data
    torch.cuda.check_error(cuda.cudaHostRegister(address, memory.nbytes, 0))
    weakref.finalize(owner, cuda.cudaHostUnregister, address).atexit = False
