"""Deferred Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer the first Ctrl-C to the end of the block, since a step's state is inconsistent. Only the main thread gets
    it."""
    usual = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(usual):
        yield
        return
    is_pending = False

    def defer(number: int, frame: Any) -> None:
        nonlocal is_pending
        if is_pending:
            usual(number, frame)
        is_pending = True

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if is_pending:
            usual(signal.SIGINT, None)
