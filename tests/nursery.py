"""Processes that begin with their imports done: forked from one that has imported everything and done nothing yet.

A script whose process takes seconds to import what it needs imports it, calls `wait_for_birth`, and goes on from there
in each process that is wanted, with a standard output, an environment and arguments of its own.
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
_LARGEST = 1 << 20  # bytes of arguments and environment


class Nursery:
    """Runs a script up to its `wait_for_birth`, and as often as asked from there. Ends with this process."""

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
        """A new process, which gets these from `wait_for_birth`, and the environment as it is now."""
        pipes = [os.pipe() for _ in range(3)]
        message = json.dumps({"arguments": arguments, "environment": {**os.environ, "OMP_NUM_THREADS": "1"}})
        socket.send_fds(self._ours, [message.encode()], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        return Forked(*(os.fdopen(read) for read, _ in pipes))


class Forked:
    """As `subprocess.Popen`, as far as it goes."""

    def __init__(self, stdout: IO[str], stderr: IO[str], fate: IO[str]) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.pid = int(fate.readline())
        self.returncode: int | None = None
        self._reader = threading.Thread(target=self._await_end, args=(fate,), daemon=True)
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
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _await_end(self, fate: IO[str]) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(fate.readline()))


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


def fork_what_is_spawned(patch: pytest.MonkeyPatch, module: str) -> None:
    """As `fork_children`, for processes that a module spawns by `multiprocessing`."""
    patch.setattr(f"{module}.multiprocessing", SimpleNamespace(get_context=lambda method: _fork_context()))


def wait_for_birth() -> Any:
    """In the script: return in each new process, with its arguments."""
    with socket.socket(fileno=int(sys.argv[1])) as wanted:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who watches over a process is nobody's to wait for
        while True:
            message, fds, _, _ = socket.recv_fds(wanted, _LARGEST, 3)
            if not message:
                os._exit(0)
            if os.fork() == 0:
                break
            for fd in fds:
                os.close(fd)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stdout, stderr, fate = fds
    if (pid := os.fork()) != 0:
        os.close(stdout)
        os.close(stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(fate, f"{pid}\n".encode())
        os.write(fate, f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for fd in fds:
        os.close(fd)
    given = json.loads(message)
    os.environ.clear()
    os.environ.update(given["environment"])
    return given["arguments"]
