"""Work that yields: while others want the processor, it takes a share of one core's time, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_S = 0.01  # after which a rest sees that nobody wants the processor any more


class DutyCycle:
    """Called between pieces of work, in the thread that does it: rests as long as the share asks for.

    Waiting for a disk costs no processor time and so no rest. A piece that took long is followed by a long rest.

    Args:
        share: of a core's time, above 0 and at most 1.
        is_wanted: whether others want the processor now.
        wait: sleeps for some seconds; returns true where going on is not worth it.
        cpu_time: that this thread has used, in seconds.
    """

    def __init__(
        self,
        share: float,
        is_wanted: Callable[[], bool],
        wait: Callable[[float], bool | None] = time.sleep,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share} is not above 0 and at most 1")
        self._share = share
        self._is_wanted = is_wanted
        self._wait = wait
        self._cpu_time = cpu_time
        self._worked_until: float | None = None

    def rest(self) -> None:
        """A piece of work is done."""
        worked_s = 0.0 if self._worked_until is None else self._cpu_time() - self._worked_until
        rest_s = worked_s * (1 - self._share) / self._share
        while rest_s > 0 and self._is_wanted():
            if self._wait(min(rest_s, _LOOK_S)):
                break
            rest_s -= _LOOK_S
        self._worked_until = self._cpu_time()
