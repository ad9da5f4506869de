"""The process that an engine runs in, from its first moment. It may be started before anybody knows what it will run.

Importing torch takes longer than all else that comes before a small model's first token; so a server starts the process
first, and makes itself ready meanwhile.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from quire.system.child_processes import GROUP_SIGNALS, signals_blocked

PROCESS_NAME = "engine"


class EngineChild:
    """A process that waits to be told what to run.

    Args:
        imports: a module that it imports until then, and beside what it is told first.
    """

    def __init__(self, imports: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would take threads' locks along, held for good
        # Two pipes: on a socket, the engine's thread that waits for commands would be woken by our reading its reports.
        their_commands, self.commands = context.Pipe(duplex=False)
        self.reports, their_reports = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_wait_and_run, args=(their_commands, their_reports, imports), name=PROCESS_NAME, daemon=True
        )
        with signals_blocked():  # the child has them blocked too, until it can ignore them
            self.process.start()
        their_commands.close()
        their_reports.close()
        atexit.register(self.process.kill)

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Have it call `function(commands, reports, *args)`, whose arguments must survive pickling.

        Raises:
            OSError: the process has ended.
        """
        self.commands.send_bytes(pickle.dumps((function, args)))

    def end(self) -> None:
        """Kill the process, if it has not ended, and let go of it."""
        self.process.kill()
        self.process.join()
        atexit.unregister(self.process.kill)


def _wait_and_run(commands: Connection, reports: Connection, imports: str | None) -> None:
    for number in GROUP_SIGNALS:  # the parent says when to stop
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    if imports is not None:
        threading.Thread(target=_import, args=(imports,), daemon=True).start()
    try:
        message = commands.recv_bytes()
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone
    function, args = pickle.loads(message)
    function(commands, reports, *args)


def _import(name: str) -> None:
    with suppress(Exception):  # whoever needs it will be told
        importlib.import_module(name)
