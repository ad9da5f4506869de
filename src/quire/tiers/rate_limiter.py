"""Slow a link down to a given bandwidth."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_SLICE_S = 0.05  # a changed bandwidth is noticed after this time


class RateLimiter:
    """Simulates a device that moves `bandwidth` bytes per second, one transfer after the other.

    The free time is computed, not observed: a late wake-up shortens the next transfer. `bandwidth` may change at any
    time; None means no limit. `wait` sleeps for some seconds and returns true to stop waiting.
    """

    def __init__(
        self,
        bandwidth: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = time.sleep,
    ) -> None:
        self.bandwidth = bandwidth
        self._clock = clock
        self._wait = wait
        self._free_at = -math.inf

    def hold(self, num_bytes: int, asked_at: float, took_s: float) -> float:
        """Wait until the device would have moved the bytes, at least `took_s` after its submission at `asked_at`.

        Returns its busy seconds, independent of late wake-ups.
        """
        began_at = due = max(asked_at, self._free_at)
        self._free_at = due + took_s
        while num_bytes > 0 and (bandwidth := self.bandwidth) is not None:
            piece = min(num_bytes, max(1, int(bandwidth * _SLICE_S)))
            num_bytes -= piece
            due += piece / bandwidth
            while (ahead_s := due - self._clock()) > 0:
                if self._wait(ahead_s):
                    return self._free_at - began_at
        self._free_at = max(self._free_at, due)
        return self._free_at - began_at
