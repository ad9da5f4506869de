"""Emulate slower storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """A device with a bandwidth, which serves one read at a time. As on a device, idle time between reads is lost.

    `wait` sleeps some seconds and returns true to give up.
    """

    def __init__(
        self,
        bandwidth: float | None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        self._bandwidth = bandwidth
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = 0.0  # end of the last read

    def begin(self, num_bytes: int) -> float:
        """Start a read. Returns its end, for `end`."""
        if self._bandwidth is None:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + num_bytes / self._bandwidth
            return self._free_at

    def end(self, due: float) -> None:
        """Wait until the read would end on the device."""
        while due and (ahead_s := due - self._clock()) > 0:
            if self._wait(ahead_s):
                return
