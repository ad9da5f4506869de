"""The engine process: an `EngineLoop` that receives commands and sends reports through pipes."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from quire.async_engine.host import EXIT_STATUS, Watchdog
from quire.async_engine.loop import EngineLoop
from quire.async_engine.messages import Command, Report, frame, load
from quire.system.child_process import forward_logs
from quire.system.threads import SWITCH_INTERVAL_S

if TYPE_CHECKING:
    from quire.engine.engine import Engine


def serve(
    commands: Connection,
    reports: Connection,
    name: str,
    make_engine: Callable[[], Engine],
    hang_timeout_s: float,
    log_level: int,
) -> None:
    """Run the loop in the main thread of the engine process, and a thread that receives commands."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    parent = _Parent(reports)
    forward_logs(parent.send, log_level)
    loop = EngineLoop(name, make_engine, parent.send)
    threading.Thread(target=_receive_all, args=(commands, loop.inbox), daemon=True).start()
    watchdog = Watchdog(name, loop, hang_timeout_s, exit_on_hang=True)
    watchdog.start()
    loop.run()
    watchdog.stop()


def _receive_all(connection: Connection, inbox: queue.SimpleQueue[Command]) -> None:
    while True:
        try:
            inbox.put(load(connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(0)  # the parent has ended


class _Parent:
    """Sends messages to the parent, from any thread. A separate sender would compete with the next step for the
    interpreter."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: Report | logging.LogRecord) -> None:
        """Send a message; exit if that fails."""
        try:
            data = memoryview(frame(message))
            with self._lock:
                while data:
                    data = data[os.write(self._connection.fileno(), data) :]
        except OSError:
            os._exit(EXIT_STATUS)
        except Exception:
            traceback.print_exc()
            os._exit(EXIT_STATUS)
