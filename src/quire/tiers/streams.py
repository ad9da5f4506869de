"""Streams for a link's copies: immediate on a CPU, a CUDA stream beside the model's on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

Copies = Callable[[], None]
Done = Callable[[], float]  #: waits until copies are done, and returns their seconds


class CpuStream:
    """The interface of `CudaStream` with synchronous copies."""

    is_cuda = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def before_work(self, copies: Copies) -> Done:
        return self.after(None, copies)

    def now(self) -> None:
        return None

    def after(self, point: object, copies: Copies) -> Done:
        started = self._clock()
        copies()
        took_s = self._clock() - started
        return lambda: took_s


class CudaStream:
    """A stream beside the model's. Copies run in order. Thread-safe."""

    is_cuda = True

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def before_work(self, copies: Copies) -> Done:
        """Copy after the work that the calling thread has queued on the device, and before its later work."""
        started, ended = self._queue(self.now(), copies)
        torch.cuda.current_stream(self._stream.device).wait_event(ended)
        return _waiting_for(started, ended)

    def now(self) -> torch.cuda.Event:
        """The current end of the calling thread's queued work, for `after`."""
        point = torch.cuda.Event()
        point.record(torch.cuda.current_stream(self._stream.device))
        return point

    def after(self, point: object, copies: Copies) -> Done:
        """Copy once the device has reached this point, concurrently with later work."""
        assert isinstance(point, torch.cuda.Event)
        return _waiting_for(*self._queue(point, copies))

    def _queue(self, point: torch.cuda.Event, copies: Copies) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(point)
            started.record()
            copies()
            ended.record()
        return started, ended


def _waiting_for(started: torch.cuda.Event, ended: torch.cuda.Event) -> Done:
    def done() -> float:
        ended.synchronize()
        return started.elapsed_time(ended) / 1e3

    return done
