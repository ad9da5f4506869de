"""End a rank whose step has failed while others may wait for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from quire.runner.ranks.interface import GRACE_S

_EXIT_STATUS = 70  # EX_SOFTWARE


class StepGuard:
    """Ends this process if no call follows a failed step: other ranks wait in a collective until this one ends."""

    def __init__(self, end: Callable[[], None] = lambda: os._exit(_EXIT_STATUS)) -> None:
        self._end = end
        self._timer: threading.Timer | None = None

    def start(self) -> None:
        """A step has failed."""
        self._timer = threading.Timer(GRACE_S, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """A call has come: the other ranks do not wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
