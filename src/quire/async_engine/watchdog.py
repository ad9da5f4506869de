"""Notices that an engine's step does not end, and says where it hangs."""

from __future__ import annotations

import faulthandler
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("quire")

EXIT_STATUS = 70  # EX_SOFTWARE: for the process's supervisor
_STDERR = 2


class Watchdog:
    """A thread that looks, now and then, how long the step under way has taken.

    Native code that hangs while it holds the interpreter stops this thread too. With `exit_on_hang` a timer outside
    the interpreter is therefore wound up at each look: where it runs down, it writes all stacks to stderr and ends
    the process (with status 1, which is not ours to choose).

    Args:
        busy_since: when the step under way began, by `time.monotonic`; None between steps.
        timeout_s: a step that takes longer hangs.
    """

    def __init__(
        self, name: str, busy_since: Callable[[], float | None], timeout_s: float, *, exit_on_hang: bool
    ) -> None:
        self._name = name
        self._busy_since = busy_since
        self._timeout_s = timeout_s
        self._exits = exit_on_hang
        self._period_s = min(1.0, timeout_s / 4)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        reported: float | None = None
        is_stopped = False
        while not is_stopped:
            if self._exits:
                faulthandler.dump_traceback_later(self._timeout_s + 2 * self._period_s, file=_STDERR, exit=True)
            is_stopped = self._stopped.wait(self._period_s)
            since = self._busy_since()
            if since is not None and since != reported and time.monotonic() - since >= self._timeout_s:
                reported = since
                self._bark()
        if self._exits:
            faulthandler.cancel_dump_traceback_later()

    def _bark(self) -> None:
        logger.critical("%s: a step has not ended for %.1f s; all stacks:\n%s", self._name, self._timeout_s, _stacks())
        if self._exits:
            logging.shutdown()
            os._exit(EXIT_STATUS)


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
