"""What a rank does that has given a step up, while the others may wait for it in the midst of the same step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from quire.runner.ranks.interface import GRACE_S

_EXIT_STATUS = 70  # EX_SOFTWARE


class StepGuard:
    """Ends this process where nobody asks for anything after a step that failed here: then the others wait for a part
    of it that will not come, and hear of that only by this rank's end.

    Args:
        end: this process.
    """

    def __init__(self, end: Callable[[], None] = lambda: os._exit(_EXIT_STATUS)) -> None:
        self._end = end
        self._timer: threading.Timer | None = None

    def fail(self) -> None:
        """Something that the rank was asked for has raised."""
        self._timer = threading.Timer(GRACE_S, self._end)
        self._timer.daemon = True
        self._timer.start()

    def hear(self) -> None:
        """The rank is asked for something: the others do not wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
