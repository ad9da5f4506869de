"""A process that has imported a module, such as one that imports torch, and forks others that then need not. Linux."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

from quire.system.child_process import serve_parent

_LOADED = ("GOMP", "KMP", "LD_", "MALLOC", "MKL", "OMP", "OPENBLAS", "PYTHON", "QUIRE_")  #: variables of libraries


class ForkedProcess:
    """A process of a `ForkServer`, with the methods of `Popen`."""

    def __init__(self, connection: socket.socket, pid: int, handle: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection, self._handle = connection, handle  #: the exit status arrives here; of the process
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        if not ended.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        with self._lock, suppress(OSError):
            if self.returncode is None:
                self.returncode = 255  # unknown if the server was killed
                self.returncode = int(self._connection.recv(64) or 255)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._handle)
        self._connection.close()


class ForkServer:
    """The server of an `owner` process, with which it ends, or an hour after its last fork. Processes share it that
    have the user, directory, Python and library settings in common."""

    def __init__(self, owner: int, imports: str, delay_s: float = 10.0) -> None:
        libraries = sorted((name, value) for name, value in os.environ.items() if name.startswith(_LOADED))
        place = os.readlink("/proc/self/ns/mnt"), os.getcwd(), sys.executable, sys.path
        key = json.dumps([owner, imports, libraries, place])
        self._arguments = [f"quire-{hashlib.sha256(key.encode()).hexdigest()}", str(owner), imports, str(delay_s)]

    def fork(self, commands: int, reports: int) -> ForkedProcess | None:
        """Fork a process that runs `serve_parent`, with our output and environment. None if no server is ready: one
        then starts, and imports after `delay_s`, at a low priority, beside the process that imports now."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(f"\0{self._arguments[0]}")
            _check_user(connection)
            socket.send_fds(connection, [json.dumps(dict(os.environ)).encode()], [commands, reports, 1, 2])
            pid, handles, _, _ = socket.recv_fds(connection, 64, 1)
            return ForkedProcess(connection, int(pid), handles[0])
        except (OSError, ValueError):
            connection.close()
        command = [sys.executable, "-P", "-c", "from quire.system.fork_server import main; main()", *self._arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
        threading.Thread(target=subprocess.run, args=(command,), kwargs={"env": env}).start()
        return None


def _check_user(connection: socket.socket) -> None:
    """Raise PermissionError if the other side belongs to another user: anyone may use the address."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.getuid():
        raise PermissionError


def main() -> None:
    """Run a server as an orphan, since the process that starts it may end first."""
    address, owner, imports, delay_s = sys.argv[1:]
    if os.fork():
        os._exit(0)
    os.setsid()
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        lifetime, requests = os.pidfd_open(int(owner)), listener.fileno()
        listener.bind(f"\0{address}")  # fails if another server runs
        if select.select([lifetime], [], [], float(delay_s))[0]:
            os._exit(0)
        with ThreadPoolExecutor(1, initializer=os.nice, initargs=(19,)) as thread:  # of this thread only
            thread.submit(importlib.import_module, imports).result()
        select.select([lifetime], [], [], 0.1)  # until the system has removed the thread
        is_safe = len(os.listdir("/proc/self/task")) == 1  # a fork copies other threads' locks, and not the threads
        gc.freeze()  # a collection in a child would copy all objects' pages
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended keepers
        listener.listen()
        while is_safe and select.select([requests, lifetime], [], [], 3600)[0] == [requests]:
            connection, _ = listener.accept()
            if not os.fork():
                _keep(connection, listener)
            connection.close()
    os._exit(0)


def _keep(connection: socket.socket, listener: socket.socket) -> None:
    """In a keeper process: fork as a client requests, and send it a handle of the process and later its exit status."""
    try:
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _check_user(connection)
        message, (commands, reports, *output), _, _ = socket.recv_fds(connection, 1 << 17, 4)
        if not (pid := os.fork()):
            connection.close()
            os.environ.clear()
            os.environ.update(json.loads(message))
            for number, descriptor in enumerate(output, start=1):
                os.dup2(descriptor, number)
            serve_parent(Connection(commands, writable=False), Connection(reports, readable=False), "")
        for descriptor in (commands, reports, *output):
            os.close(descriptor)
        socket.send_fds(connection, [str(pid).encode()], [os.pidfd_open(pid)])
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(1)
