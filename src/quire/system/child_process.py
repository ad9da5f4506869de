"""Child processes without `multiprocessing`, which imports the parent's main module again: each runs one function,
leaves signals to its parent, and ends no later than its parent."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

from quire.system.memory import explain_kill, num_memory_kills

#: A terminal or a supervisor sends them to the whole process group.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILL_TIMEOUT_S = 5.0
_MAIN = "from quire.system.child_process import main; main()"
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1"}  # of numpy's, which would idle beside our kernels', each with its buffers
_running: weakref.WeakSet[ChildProcess] = weakref.WeakSet()  # as `multiprocessing` keeps its own


class ChildProcess:
    """A process that starts at once, imports a module in the background, and waits for `run`. `reports` is a pipe of
    its own: a single socket would wake the child's receiver whenever we read. `kill` is idempotent."""

    def __init__(self, name: str, *, imports: str = "", env: Mapping[str, str] | None = None, nice: int = 0) -> None:
        self.name = name
        their_commands, self.commands = Pipe(duplex=False)
        self.reports, their_reports = Pipe(duplex=False)
        with their_commands, their_reports:
            self.process = _spawn(name, their_commands, their_reports, imports, env or {}, nice)
        self._num_memory_kills = num_memory_kills()
        self.kill = weakref.finalize(self, _kill, self.process)
        _running.add(self)

    def run(self, function: Callable[..., None], *args: Any) -> None:
        """Pickle and call `function(commands, reports, *args)` in the process. OSError if it has ended."""
        self.commands.send_bytes(pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL))

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the process. Return False on timeout."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
            return True
        return False

    def describe_end(self) -> str | None:
        """Describe how the process ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        if status >= 0:
            return f"ended with status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        why = f" ({explain_kill(self._num_memory_kills)})" if status == -signal.SIGKILL else ""
        return f"was ended by {name}{why}"

    def close(self) -> None:
        """Kill the process and close its pipes."""
        self.kill()
        self.commands.close()
        self.reports.close()


def running_children() -> list[ChildProcess]:
    """All child processes of this process."""
    return [child for child in list(_running) if child.is_alive()]


def _spawn(
    name: str, commands: Connection, reports: Connection, imports: str, environment: Mapping[str, str], niceness: int
) -> subprocess.Popen[bytes]:
    descriptors = (commands.fileno(), reports.fileno())
    target = os.nice(0) + niceness
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start() -> subprocess.Popen[bytes]:
        # Threads have their own niceness on Linux, so that even the child's imports run at a low priority.
        if niceness and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), target)
        with signals_blocked():
            return subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, *map(str, descriptors), str(target), imports, name],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**_NO_THREADS, **os.environ, **paths, **environment},
            )

    with ThreadPoolExecutor(1) as thread:  # a thread cannot lower its niceness again
        return thread.submit(start).result()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_TIMEOUT_S)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Start children with these signals blocked: Ctrl-C reaches them before they can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the process --------------------------------------------------------------------------------------------------


def main() -> None:
    """Run a child process. Never returns."""
    commands, reports, niceness, imports = sys.argv[1:5]
    os.nice(int(niceness) - os.nice(0))
    serve_parent(Connection(int(commands), writable=False), Connection(int(reports), readable=False), imports)


def serve_parent(commands: Connection, reports: Connection, imports: str) -> None:
    """Ignore signals to the process group, wait for a function, run it and exit."""
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, args=(commands.fileno(),), daemon=True).start()
    if imports:
        threading.Thread(target=_import, args=(imports,), daemon=True).start()
    try:
        message = commands.recv_bytes()
    except (EOFError, OSError):
        os._exit(0)
    function, args = pickle.loads(message)
    function(commands, reports, *args)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # unloading torch would keep the parent waiting for most of a second


def _end_with_parent(descriptor: int) -> None:
    """Exit when the parent's end of the pipe closes, whatever this process is doing."""
    hang_up = select.poll()
    hang_up.register(descriptor, 0)
    hang_up.poll()
    os._exit(0)


def _import(name: str) -> None:
    with suppress(Exception):  # the module that needs it reports the error
        importlib.import_module(name)


# -- logging ---------------------------------------------------------------------------------------------------------


class _LogForwarder(QueueHandler):
    def __init__(self, send: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(SimpleQueue())  # stays empty
        self._send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        self._send(record)


def forward_logs(send: Callable[[logging.LogRecord], None], level: int) -> None:
    """Send our log records from `level` on, and others' warnings, to the parent, which has handlers for them. `send`
    may be called from any thread."""
    logging.basicConfig(level=logging.WARNING, handlers=[_LogForwarder(send)], format="%(message)s")
    logging.getLogger("quire").setLevel(level)


def handle_forwarded(record: logging.LogRecord, source: str = "") -> None:
    """Log a record that a child has sent."""
    if source:
        record.msg = f"{source}: {record.msg}"
    logging.getLogger(record.name).handle(record)
