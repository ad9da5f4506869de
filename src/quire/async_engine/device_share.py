"""Engines that share a device take turns, a step each, by the seconds that they have used.

Start-time fair queueing over one lock: the engine that has used least goes next. One that comes back from idling begins
where the others are, so that it neither gets credit for its idle time nor pays for theirs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SharedDevice:
    """One device, for the engines that share it; each asks for a `share`.

    Args:
        clock: seconds, monotonic.
        grace_s: how long the device waits for the engine whose turn it is while that one hands out its last step's
            results; without it two engines would alternate step by step, however long their steps are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, grace_s: float = 0.005) -> None:
        self.clock = clock
        self.grace_s = grace_s
        self.changed = threading.Condition()
        self.holder: DeviceShare | None = None
        self.since = 0.0  #: when the holder took the device, or the last one gave it back
        self.shares: list[DeviceShare] = []  #: of engines with work
        self.floor_s = 0.0  #: the least that one of them has used: where a newcomer begins

    def share(self) -> DeviceShare:
        """A share for one engine."""
        return DeviceShare(self)

    def raise_floor(self, default: float) -> None:
        self.floor_s = max(self.floor_s, min((share.used_s for share in self.shares), default=default))
        self.changed.notify_all()


class DeviceShare:
    """One engine's share: `enter` when it gets work, ``with share:`` around each step, `leave` when it has none."""

    def __init__(self, device: SharedDevice) -> None:
        self.used_s = 0.0  #: on the device; after idling, lifted to what the others have used
        self._is_waiting = False
        self._device = device

    def enter(self) -> None:
        device = self._device
        with device.changed:
            if self not in device.shares:
                self.used_s = max(self.used_s, device.floor_s)
                device.shares.append(self)

    def leave(self) -> None:
        device = self._device
        with device.changed:
            if self in device.shares:
                device.shares.remove(self)
                device.raise_floor(default=self.used_s)

    def __enter__(self) -> None:
        device = self._device
        with device.changed:
            self._is_waiting = True
            while (wait_s := self._wait_s()) != 0:
                device.changed.wait(wait_s)
            self._is_waiting = False
            device.holder = self
            device.since = device.clock()

    def __exit__(self, *failure: object) -> None:
        device = self._device
        with device.changed:
            began, device.since = device.since, device.clock()
            self.used_s += device.since - began
            device.holder = None
            device.raise_floor(default=self.used_s)

    def _wait_s(self) -> float | None:
        """How long to wait before looking again. 0: it is this share's turn; None: until something changes."""
        device = self._device
        if device.holder is not None:
            return None
        ahead = [other for other in device.shares if other.used_s < self.used_s]
        if any(other._is_waiting for other in ahead):
            return None
        return max(0, device.since + device.grace_s - device.clock()) if ahead else 0
