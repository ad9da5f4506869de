"""A lock whose users hold it for equal time: start-time fair queueing. A returning user has no credit for idle time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class FairLock:
    """A lock for engines that share a device; each acquires it for a step through a `FairLockUser`. It waits `grace_s`
    for the user whose turn it is; else two users would alternate, whatever their steps' lengths."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, grace_s: float = 0.005) -> None:
        self.clock = clock
        self.grace_s = grace_s
        self.changed = threading.Condition()
        self.holder: FairLockUser | None = None
        self.since = 0.0  #: time of the last acquisition or release
        self.active: list[FairLockUser] = []  #: users with work
        self.floor_s = 0.0  #: least use among active users, from which a newcomer starts

    def add_user(self) -> FairLockUser:
        return FairLockUser(self)

    def raise_floor(self, default: float) -> None:
        self.floor_s = max(self.floor_s, min((user.used_s for user in self.active), default=default))
        self.changed.notify_all()


class FairLockUser:
    """A user of a `FairLock`: `enter` when it has work, ``with user:`` around each step, `leave` when it has none."""

    def __init__(self, lock: FairLock) -> None:
        self.used_s = 0.0  #: time holding the lock; raised to the others' after idling
        self._is_waiting = False
        self._lock = lock

    def enter(self) -> None:
        lock = self._lock
        with lock.changed:
            if self not in lock.active:
                self.used_s = max(self.used_s, lock.floor_s)
                lock.active.append(self)

    def leave(self) -> None:
        lock = self._lock
        with lock.changed:
            if self in lock.active:
                lock.active.remove(self)
                lock.raise_floor(default=self.used_s)

    def __enter__(self) -> None:
        lock = self._lock
        with lock.changed:
            self._is_waiting = True
            while (wait_s := self._wait_s()) != 0:
                lock.changed.wait(wait_s)
            self._is_waiting = False
            lock.holder = self
            lock.since = lock.clock()

    def __exit__(self, *failure: object) -> None:
        lock = self._lock
        with lock.changed:
            acquired_at, lock.since = lock.since, lock.clock()
            self.used_s += lock.since - acquired_at
            lock.holder = None
            lock.raise_floor(default=self.used_s)

    def _wait_s(self) -> float | None:
        """Seconds until the next check. 0: it is this user's turn; None: wait for a change."""
        lock = self._lock
        if lock.holder is not None:
            return None
        ahead = [other for other in lock.active if other.used_s < self.used_s]
        if any(other._is_waiting for other in ahead):
            return None
        return max(0, lock.since + lock.grace_s - lock.clock()) if ahead else 0
