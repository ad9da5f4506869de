"""What this process and those that it starts do about signals, and about each other's end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  #: a terminal or a supervisor sends them to all processes at once


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Processes that are started within begin with SIGINT and SIGTERM blocked: a terminal's Ctrl-C reaches them while
    they import, long before they can say what they make of it."""
    resource_tracker.ensure_running()  # starting it, as the first process does, would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """In a child: end when the parent does, however it ends. A child that waits for work on a pipe of which it holds
    both ends would outlive a parent that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(0)
