"""Watchdog for hanging steps: logs all stacks and may end the process."""

from __future__ import annotations

import faulthandler
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("quire")

EXIT_STATUS = 70  # EX_SOFTWARE
_STDERR = 2


class Watchdog:
    """A thread that checks the time of the running step.

    Native code that hangs with the interpreter lock stops this thread too. With `exit_on_hang`, each check therefore
    rearms faulthandler's timer, which writes all stacks to stderr and ends the process with status 1.

    Args:
        busy_since: start of the running step (`time.monotonic`); None between steps.
        timeout_s: time after which a step counts as hanging.
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
                self._report_hang()
        if self._exits:
            faulthandler.cancel_dump_traceback_later()

    def _report_hang(self) -> None:
        logger.critical("%s: a step has not ended for %.1f s; all stacks:\n%s", self._name, self._timeout_s, _stacks())
        if self._exits:
            logging.shutdown()
            os._exit(EXIT_STATUS)


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
