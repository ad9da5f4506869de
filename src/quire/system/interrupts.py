"""Ctrl-C at a moment of our choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_put_off() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done: between two instructions of a scheduler, say, its books do not add up.

    A second Ctrl-C does not wait. Signals reach the main thread only, so elsewhere there is nothing to do.
    """
    usual = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(usual):
        yield
        return
    is_pending = False

    def note(number: int, frame: Any) -> None:
        nonlocal is_pending
        if is_pending:
            usual(number, frame)
        is_pending = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if is_pending:
            usual(signal.SIGINT, None)
