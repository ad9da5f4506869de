"""Throttle for background work: it runs between the steps of an engine, never beside them, whose threads it would
stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class BackgroundThrottle:
    """One thread steps, another works in pieces, which slow steps down by `share` (0 to 1). A piece waits at most
    `longest_wait_s`, then starts beside a step; a pause of the steps lasts at most `longest_turn_s`."""

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
        self._ratio = share / (1 - share)  # background seconds per step second
        self._clock = clock
        self._longest_wait_s, self._longest_turn_s = longest_wait_s, longest_turn_s
        self._changed = threading.Condition()
        self.is_stepping = False  #: steps follow each other
        self._is_closed = False
        self._step_began = 0.0
        self._credit_s = 0.0  #: background time; negative after a piece that exceeded its turn
        self._is_waiting = False  # the background, for a turn
        self._turn_until: float | None = None  # None: no turn

    # -- the stepping thread -------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self.is_stepping = True
        self._step_began = self._clock()

    def end_step(self, *, goes_on: bool) -> None:
        """End a step. Returns after the background's turn, if it waits for one."""
        with self._changed:
            now = self._clock()
            self._credit_s = min(self._credit_s, 0.0) + (now - self._step_began) * self._ratio
            if goes_on and self._is_waiting and self._credit_s > 0:
                self._turn_until = now + self._credit_s
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._turn_until is None, self._longest_turn_s)
                self._turn_until = None
                self._credit_s -= self._clock() - now
            elif not goes_on:
                self._stop()

    def pause(self) -> None:
        """Report that no step follows for now."""
        with self._changed:
            self._stop()

    def _stop(self) -> None:
        self.is_stepping = False
        self._changed.notify_all()

    # -- the background ------------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Wait until a piece of background work may start."""
        if not self.is_stepping:
            return
        with self._changed:
            if self._turn_until is not None and self._clock() < self._turn_until:
                return
            self._end_turn()
            self._is_waiting = True
            self._changed.wait_for(
                lambda: self._turn_until is not None or not self.is_stepping or self._is_closed, self._longest_wait_s
            )
            self._is_waiting = False

    def release(self) -> None:
        """Return the rest of the turn to the steps, before waiting for anything else."""
        with self._changed:
            self._end_turn()

    def close(self) -> None:
        """End all waits, on either side."""
        with self._changed:
            self._is_closed = True
            self._end_turn()
            self._changed.notify_all()

    def _end_turn(self) -> None:
        if self._turn_until is not None:
            self._turn_until = None
            self._changed.notify_all()
