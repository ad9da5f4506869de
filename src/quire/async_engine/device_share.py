"""Engines that share a device take turns, a step each, by the seconds that they have used.

Start-time fair queueing over one lock: the engine that has used least goes next, and one that comes back from idling
begins where the others are, so that it neither gets credit for its idle time nor pays for theirs. Knows nothing about
what a turn is used for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType


class SharedDevice:
    """One device, for the engines that share it; each asks for a `share`.

    Args:
        clock: seconds, monotonic.
        grace_s: how long the device waits for the engine whose turn it is while that one hands out its last step's
            results; without it two engines would alternate step by step, however long their steps are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, grace_s: float = 0.005) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._changed = threading.Condition()
        self._holder: DeviceShare | None = None
        self._since = 0.0  #: when the holder took it, or the last one gave it back
        self._shares: list[DeviceShare] = []  #: of engines with work
        self._floor_s = 0.0  #: what the least user among them has used: where a newcomer begins

    def share(self) -> DeviceShare:
        """A share for one engine."""
        return DeviceShare(self)

    def enter(self, share: DeviceShare) -> None:
        with self._changed:
            if share not in self._shares:
                share.used_s = max(share.used_s, self._floor_s)
                self._shares.append(share)

    def leave(self, share: DeviceShare) -> None:
        with self._changed:
            if share in self._shares:
                self._shares.remove(share)
                self._raise_floor(default=share.used_s)
                self._changed.notify_all()

    def take(self, share: DeviceShare) -> None:
        with self._changed:
            share.is_waiting = True
            while (wait_s := self._wait_s(share)) != 0:
                self._changed.wait(wait_s)
            share.is_waiting = False
            self._holder = share
            self._since = self._clock()

    def give_back(self, share: DeviceShare) -> None:
        with self._changed:
            began, self._since = self._since, self._clock()
            share.used_s += self._since - began
            self._holder = None
            self._raise_floor(default=share.used_s)
            self._changed.notify_all()

    def _wait_s(self, share: DeviceShare) -> float | None:
        """How long a share waits before it looks again. 0: it is its turn; None: until something changes."""
        if self._holder is not None:
            return None
        ahead = [other for other in self._shares if other.used_s < share.used_s]
        if any(other.is_waiting for other in ahead):
            return None
        return max(0, self._since + self._grace_s - self._clock()) if ahead else 0

    def _raise_floor(self, default: float) -> None:
        self._floor_s = max(self._floor_s, min((share.used_s for share in self._shares), default=default))


class DeviceShare:
    """One engine's share: `enter` when it gets work, ``with share:`` around each step, `leave` when it has none."""

    def __init__(self, device: SharedDevice) -> None:
        self.used_s = 0.0  #: on the device; after idling, lifted to what the others have used
        self.is_waiting = False
        self._device = device

    def enter(self) -> None:
        self._device.enter(self)

    def leave(self) -> None:
        self._device.leave(self)

    def __enter__(self) -> None:
        self._device.take(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._device.give_back(self)
