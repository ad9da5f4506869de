"""Signals of a terminal or supervisor: those that stop a server, and deferred Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals(receive: Callable[[int], object], end: Callable[[int], None]) -> Iterator[None]:
    """Call `receive` with the first SIGTERM or SIGINT, and `end` with an exit status at the second. The handlers run
    between two instructions of the main thread, so they work even while its loop is blocked. In another thread, do
    nothing."""
    received: list[int] = []

    def handle(signum: int, frame: Any) -> None:
        received.append(signum)
        if len(received) > 1:
            end(128 + signum)
        receive(signum)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT) if is_main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
