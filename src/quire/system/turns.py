"""Work in the background that comes between steps of other work, never beside them.

A step's threads wait for each other: whatever takes one of their cores for a moment stops all of them, and takes memory
bandwidth besides. So the thread that steps waits for a piece of the other work now and then, which has all cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Turns:
    """One thread steps, another works in pieces. Steps are slowed down by the share, and by no more.

    Args:
        share: of time that goes to the background while there are steps, above 0 and below 1.
        clock: seconds, monotonic.
        longest_wait_s: that a piece waits while steps come to no end, or nobody takes the next one; then it begins.
        longest_turn_s: that steps wait for a turn to end.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        longest_wait_s: float = 1.0,
        longest_turn_s: float = 0.5,
    ) -> None:
        if not 0 < share < 1:
            raise ValueError(f"a share of {share} is not between 0 and 1")
        self._ratio = share / (1 - share)  # of a turn to the steps before it
        self._clock = clock
        self._longest_wait_s, self._longest_turn_s = longest_wait_s, longest_turn_s
        self._changed = threading.Condition()
        self._is_stepping = False
        self._is_closed = False
        self._step_began = 0.0
        self._owed_s = 0.0  #: to the background; below zero after a piece that was longer than its turn
        self._waits = False  # the background, for a turn
        self._turn_until: float | None = None  # None: it has none

    @property
    def is_stepping(self) -> bool:
        """Whether steps follow each other."""
        return self._is_stepping

    # -- the thread that steps -----------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self._is_stepping = True
        self._step_began = self._clock()

    def end_step(self, *, goes_on: bool) -> None:
        """A step has ended: the background has its turn, if it waits for one, and this returns after that.

        Args:
            goes_on: whether another step follows at once; otherwise nothing has to wait.
        """
        with self._changed:
            now = self._clock()
            self._owed_s = min(self._owed_s, 0.0) + (now - self._step_began) * self._ratio
            if goes_on and self._waits and self._owed_s > 0:
                self._turn_until = now + self._owed_s
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._turn_until is None, self._longest_turn_s)
                self._turn_until = None
                self._owed_s -= self._clock() - now
            elif not goes_on:
                self._stop()

    def pause(self) -> None:
        """No step follows for now."""
        with self._changed:
            self._stop()

    def _stop(self) -> None:
        self._is_stepping = False
        self._changed.notify_all()

    # -- the background ------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Called before each piece of work; returns when it may begin."""
        if not self._is_stepping:
            return
        with self._changed:
            if self._turn_until is not None and self._clock() < self._turn_until:
                return
            self._end_turn()
            self._waits = True
            self._changed.wait_for(
                lambda: self._turn_until is not None or not self._is_stepping or self._is_closed, self._longest_wait_s
            )
            self._waits = False

    def leave(self) -> None:
        """Called before waiting for anything else: whatever is left of the turn goes back to the steps."""
        with self._changed:
            self._end_turn()

    def close(self) -> None:
        """Nothing waits any more, on either side."""
        with self._changed:
            self._is_closed = True
            self._end_turn()
            self._changed.notify_all()

    def _end_turn(self) -> None:
        if self._turn_until is not None:
            self._turn_until = None
            self._changed.notify_all()
