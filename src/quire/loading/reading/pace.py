"""Makes reads take as long as on slower storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Storage that gives `bandwidth` bytes a second, one read after the other.

    A read is given its turn when it begins, and is not over before that turn's end. So nobody waits where nothing is
    read, and time that passes between two reads is lost, as it is on a device.

    Args:
        bandwidth: bytes a second; None is as fast as it goes.
        clock: seconds, monotonic.
        wait: sleeps for some seconds; returns true where going on is not worth it.
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
        self._free_at = 0.0  # the end of the last turn

    def begin(self, num_bytes: int) -> float:
        """A read of so many bytes begins. Returns the end of its turn, for `end`."""
        if self._bandwidth is None:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + num_bytes / self._bandwidth
            return self._free_at

    def end(self, due: float) -> None:
        """The bytes are there; return when they would be."""
        while due and (ahead_s := due - self._clock()) > 0:
            if self._wait(ahead_s):
                return
