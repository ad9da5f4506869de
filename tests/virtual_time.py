"""An asyncio event loop on virtual time, for code that only waits for timers.

The clock jumps to the next timer, so waiting takes no time and every duration is exact.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Advances the clock instead of waiting for input."""

    def __init__(self, clock: VirtualLoop) -> None:
        super().__init__()
        self._loop = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("all tasks wait, but no timer is set")
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Advance the clock; tests call it to simulate a blocked loop."""
        self._now += max(0.0, seconds)


def run_in_virtual_time(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()
