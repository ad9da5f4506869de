"""Fork processes from one that has finished its imports, which would take each of them seconds.

A script imports its modules and calls `wait_for_fork`, which returns in each requested process, with its own standard
output, environment and arguments.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from quire.system.child_process import serve_parent

if TYPE_CHECKING:
    import pytest

_ROOT = Path(__file__).parents[1]
_MAX_MESSAGE = 1 << 20  # bytes of arguments and environment


class ProcessPool:
    """Runs a script up to its `wait_for_fork`, and forks it on request. Ends with this process."""

    def __init__(self, script: Path) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT / "tests")])
        subprocess.Popen(
            [sys.executable, "-u", str(script), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        theirs.close()

    def fork(self, arguments: dict[str, Any]) -> Forked:
        """Start a process; it gets the arguments from `wait_for_fork`, and the current environment."""
        pipes = [os.pipe() for _ in range(3)]
        message = json.dumps({"arguments": arguments, "environment": {**os.environ, "OMP_NUM_THREADS": "1"}})
        socket.send_fds(self._ours, [message.encode()], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        return Forked(*(os.fdopen(read) for read, _ in pipes))


class Forked:
    """A subset of `subprocess.Popen`."""

    def __init__(self, stdout: IO[str], stderr: IO[str], status: IO[str]) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.pid = int(status.readline())
        self.returncode: int | None = None
        self._reader = threading.Thread(target=self._await_end, args=(status,), daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._reader.join(timeout)
        if self.returncode is None:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout} s")
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just exited
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _await_end(self, status: IO[str]) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(status.readline()))


def _fork_context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["quire.assembly", "quire.async_engine.process", "quire.server.app"])
    return context


def fork_children(patch: pytest.MonkeyPatch) -> None:
    """Fork each `ChildProcess` from one process that has imported torch, the engine and the server.

    It inherits this process's environment as it was at the first fork. Tests of the command line see real spawns.
    """

    def spawn(name: str, commands: Connection, reports: Connection, imports: str, *rest: Any) -> ForkedChild:
        process = _fork_context().Process(target=serve_parent, args=(commands, reports, imports), name=name)
        process.start()
        return ForkedChild(process)

    patch.setattr("quire.system.child_process._spawn", spawn)


class ForkedChild:
    """The part of `subprocess.Popen` that `ChildProcess` uses."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.kill = process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> None:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)


def fork_spawned(patch: pytest.MonkeyPatch, module: str) -> None:
    """As `fork_children`, for processes that a module spawns by `multiprocessing`."""
    patch.setattr(f"{module}.multiprocessing", SimpleNamespace(get_context=lambda method: _fork_context()))


def wait_for_fork() -> Any:
    """Return the arguments in each forked process; the script calls this after its imports."""
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the monitoring processes need no wait
        while True:
            message, fds, _, _ = socket.recv_fds(requests, _MAX_MESSAGE, 3)
            if not message:
                os._exit(0)
            if os.fork() == 0:
                break
            for fd in fds:
                os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdout, stderr, status = fds
    if (pid := os.fork()) != 0:
        os.close(stdout)
        os.close(stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(status, f"{pid}\n".encode())
        os.write(status, f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for fd in fds:
        os.close(fd)
    given = json.loads(message)
    os.environ.clear()
    os.environ.update(given["environment"])
    return given["arguments"]
