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


class DeviceTurns:
    """One device, for the engines that share it; each asks for a `place`.

    Args:
        clock: seconds, monotonic.
        grace_s: how long the device waits for the engine whose turn it is while that one hands out its last step's
            results; without it two engines would alternate step by step, however long their steps are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, grace_s: float = 0.005) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._changed = threading.Condition()
        self._holder: Place | None = None
        self._since = 0.0  #: when the holder took it, or the last one gave it back
        self._places: list[Place] = []  #: of engines with work
        self._floor_s = 0.0  #: what the least user among them has used: where a newcomer begins

    def place(self) -> Place:
        """A place for one engine."""
        return Place(self)

    def enter(self, place: Place) -> None:
        with self._changed:
            if place not in self._places:
                place.used_s = max(place.used_s, self._floor_s)
                self._places.append(place)

    def leave(self, place: Place) -> None:
        with self._changed:
            if place in self._places:
                self._places.remove(place)
                self._raise_floor(default=place.used_s)
                self._changed.notify_all()

    def take(self, place: Place) -> None:
        with self._changed:
            place.is_waiting = True
            while (wait_s := self._wait_s(place)) != 0:
                self._changed.wait(wait_s)
            place.is_waiting = False
            self._holder = place
            self._since = self._clock()

    def give_back(self, place: Place) -> None:
        with self._changed:
            began, self._since = self._since, self._clock()
            place.used_s += self._since - began
            self._holder = None
            self._raise_floor(default=place.used_s)
            self._changed.notify_all()

    def _wait_s(self, place: Place) -> float | None:
        """How long a place waits before it looks again. 0: it is its turn; None: until something changes."""
        if self._holder is not None:
            return None
        ahead = [other for other in self._places if other.used_s < place.used_s]
        if any(other.is_waiting for other in ahead):
            return None
        return max(0, self._since + self._grace_s - self._clock()) if ahead else 0

    def _raise_floor(self, default: float) -> None:
        self._floor_s = max(self._floor_s, min((place.used_s for place in self._places), default=default))


class Place:
    """One engine's place: `enter` when it gets work, ``with place:`` around each step, `leave` when it has none."""

    def __init__(self, turns: DeviceTurns) -> None:
        self.used_s = 0.0  #: on the device; after idling, lifted to what the others have used
        self.is_waiting = False
        self._turns = turns

    def enter(self) -> None:
        self._turns.enter(self)

    def leave(self) -> None:
        self._turns.leave(self)

    def __enter__(self) -> None:
        self._turns.take(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._turns.give_back(self)
