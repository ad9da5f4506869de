"""Makes a link take as long as a slower device would."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_SLICE_S = 0.05  # after which a changed bandwidth is noticed


class RateLimiter:
    """A device that moves `bandwidth` bytes a second, one transfer after the other.

    It is exact on average. The time at which the device is free again is counted, not observed: a late waking-up that
    makes one transfer longer makes the next one shorter.

    Args:
        bandwidth: bytes a second; None is as fast as it goes. May be changed at any time, from any thread.
        clock: seconds, monotonic.
        wait: sleeps for some seconds; returns true where going on is not worth it.
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
        """Return when such a device would have moved the bytes.

        Args:
            num_bytes: of one transfer.
            asked_at: when it was handed to the device, which may have been busy.
            took_s: what moving them really took; a device is never faster than that.

        Returns:
            The seconds that the device would have been busy with them, whenever this thread was woken.
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
