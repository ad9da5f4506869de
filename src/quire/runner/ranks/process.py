"""Ranks in processes of their own on this machine, and the way there: a socket that nobody else has an end of.

A rank's process ends with the process that started it, however that ends. It is no child of `multiprocessing`, which
gives none to the processes that engines run in, and runs a program's main module once more in each.
"""

from __future__ import annotations

import contextlib
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
from collections import deque
from collections.abc import Callable, Mapping
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

from quire.runner.ranks.guard import StepGuard
from quire.runner.ranks.interface import RankLost
from quire.system.child_processes import GROUP_SIGNALS, signals_blocked
from quire.system.threads import spin_briefly

logger = logging.getLogger("quire")

_END_S = 5.0  # for a process that was killed to be gone
_OK, _RAISED, _LOG = "ok", "raised", "log"


class RankProcess:
    """See `RankHandle`. A process that waits to be told which rank it is, and imports meanwhile.

    Args:
        rank: for messages.
        size: likewise.
        environment: what is different there.
        imports: a module that it imports until then.
    """

    def __init__(
        self, rank: int, size: int, *, environment: Mapping[str, str] | None = None, imports: str = "quire.assembly"
    ) -> None:
        self._name = f"rank {rank} of {size}"
        self._waiting: deque[_Answer] = deque()
        self._is_ended = False
        self._connection, theirs = Pipe()
        command = [sys.executable, "-P", "-m", "quire.runner.ranks", str(theirs.fileno())]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), "QUIRE_RANK_IMPORTS": imports}
        with theirs, signals_blocked():  # a terminal's Ctrl-C is for us, who say when to stop
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **paths, **(environment or {})},
            )
        self._kill = weakref.finalize(self, _kill, self._process)
        self._built: Callable[[float | None], Any] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def build(self, make: Callable[[], Any]) -> None:
        """Have it make the rank's worker. Returns at once."""
        self._built = self._send(make, ())

    def wait_built(self, timeout_s: float | None) -> None:
        assert self._built is not None, "it was not told what to build"
        self._built(timeout_s)

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        return self._send(method, args)

    def _send(self, what: Any, args: tuple[Any, ...]) -> Callable[[float | None], Any]:
        message = pickle.dumps((what, args), pickle.HIGHEST_PROTOCOL)
        try:
            self._connection.send_bytes(message)
        except OSError:
            raise self._lost() from None
        answer = _Answer()
        self._waiting.append(answer)

        def wait(timeout_s: float | None) -> Any:
            while not answer.is_there:
                self._receive(timeout_s)
            if answer.error is not None:
                raise answer.error
            return answer.value

        return wait

    def _receive(self, timeout_s: float | None) -> None:
        try:
            if timeout_s is not None and not self._connection.poll(timeout_s):
                raise TimeoutError(f"{self._name} has not answered for {timeout_s:g} s")
            kind, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            raise self._lost() from None
        if kind == _LOG:
            value.msg = f"{self._name}: {value.msg}"
            logging.getLogger(value.name).handle(value)
            return
        answer = self._waiting.popleft()
        answer.is_there = True
        if kind == _RAISED:
            answer.error = value
        else:
            answer.value = value

    def _lost(self) -> RankLost:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its socket is closed: it has ended, or is about to
            self._process.wait(_END_S)
        return RankLost(self.why_lost() or f"{self._name} has closed its connection")

    def why_lost(self) -> str | None:
        status = self._process.poll()
        if status is None:
            return None
        return f"{self._name} {_how_it_ended(status)}"

    def watch(self, tell: Callable[[str], None]) -> None:
        process, name, ended = self._process, self._name, weakref.ref(self)

        def wait() -> None:
            status = process.wait()
            handle = ended()
            if handle is not None and not handle._is_ended:
                tell(f"{name} {_how_it_ended(status)}")

        threading.Thread(target=wait, name=f"watch {self._name}", daemon=True).start()

    def end(self) -> None:
        self._is_ended = True
        self._kill()
        self._connection.close()


def start_rank_processes(size: int) -> list[RankProcess]:
    """The processes of all ranks but the first, each with a GPU of its own where there are some. Imports no torch."""
    return [RankProcess(rank, size, environment=_devices_of(rank)) for rank in range(1, size)]


def _devices_of(rank: int) -> dict[str, str]:
    """A rank sees one GPU, which so is the one that it uses: the one of its number among those that we may use."""
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name)
    if visible is None:
        return {name: str(rank)}
    return {name: ",".join(visible.split(",")[rank : rank + 1])}


class _Answer:
    """What a call has brought, once it is there."""

    __slots__ = ("error", "is_there", "value")

    def __init__(self) -> None:
        self.is_there = False
        self.value: Any = None
        self.error: Exception | None = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


# -- in the process --------------------------------------------------------------------------------------------------


def serve_rank(descriptor: int) -> None:
    """The whole life of a rank's process. Never returns."""
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    faulthandler.enable()
    spin_briefly()
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    threading.Thread(target=_import, args=(os.environ.pop("QUIRE_RANK_IMPORTS", ""),), daemon=True).start()
    driver = _Driver(Connection(descriptor))
    logging.basicConfig(level=logging.WARNING, handlers=[_ToDriver(driver)], format="%(message)s")
    worker: Any = None
    guard = StepGuard()
    while True:
        what, args = driver.receive()
        guard.hear()
        try:
            if worker is None:
                worker, value = what(*args), None
            else:
                value = getattr(worker, what)(*args)
        except Exception as error:
            driver.send(_RAISED, error)
            if worker is None:
                os._exit(1)
            if what == "execute":  # nothing else has others wait
                guard.fail()
        else:
            driver.send(_OK, value)


def _end_with(descriptor: int) -> None:
    """End when the other end of the socket is closed, whatever this process does meanwhile."""
    end = select.poll()
    end.register(descriptor, 0)  # a hang-up is told anyway
    end.poll()
    os._exit(0)


def _import(name: str) -> None:
    with contextlib.suppress(Exception):  # whoever needs it will be told
        importlib.import_module(name)


class _Driver:
    """The way to the process that drives this one; any thread may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = threading.Lock()

    def receive(self) -> tuple[Any, tuple[Any, ...]]:
        try:
            what, args = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        return what, args

    def send(self, kind: str, value: Any) -> None:
        try:
            data = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data) if kind == _RAISED else None  # some errors can be written and not read
        except Exception:
            data = pickle.dumps((kind, RuntimeError(f"{type(value).__name__}: {value}")))
        with self._turn:
            try:
                self._connection.send_bytes(data)
            except OSError:
                os._exit(0)


class _ToDriver(QueueHandler):
    """Sends log records to the process that has handlers for them."""

    def __init__(self, driver: _Driver) -> None:
        super().__init__(SimpleQueue())  # which stays empty
        self._driver = driver

    def enqueue(self, record: logging.LogRecord) -> None:
        self._driver.send(_LOG, record)
