"""Where the link's copies run: on CPU at once, on a GPU on a stream of their own beside the model's."""

from __future__ import annotations

from collections.abc import Callable

import torch

Copies = Callable[[], None]
Done = Callable[[], float]  #: waits until copies are done; the seconds that they took


class CpuStream:
    """As `CudaStream`; copies are done when they return."""

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
    """A stream beside the one that the model computes on; neither waits for the other on the host. Copies run in the
    order in which they are begun. May be called from several threads."""

    is_cuda = True

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def before_work(self, copies: Copies) -> Done:
        """Copy after all that the calling thread has given the device so far, and before anything that it gives it
        from now on."""
        started, ended = self._queue(self.now(), copies)
        torch.cuda.current_stream(self._stream.device).wait_event(ended)
        return _waiting_for(started, ended)

    def now(self) -> torch.cuda.Event:
        """A point in the calling thread's work for the device, for `after`."""
        point = torch.cuda.Event()
        point.record(torch.cuda.current_stream(self._stream.device))
        return point

    def after(self, point: object, copies: Copies) -> Done:
        """Copy once the device has come to this point, beside whatever follows."""
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


def make_stream(device: torch.device, clock: Callable[[], float]) -> CpuStream | CudaStream:
    """The stream for a device's blocks. The clock counts seconds."""
    return CudaStream(device) if device.type == "cuda" else CpuStream(clock)
