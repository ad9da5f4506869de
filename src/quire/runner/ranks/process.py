"""Ranks in child processes on this machine."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from quire.runner.ranks.guard import StepGuard
from quire.runner.ranks.interface import RankLost
from quire.system.child_process import ChildProcess, forward_logs, handle_forwarded

_END_S = 5.0  # for a process with a closed pipe to end
_OK, _RAISED, _LOG = "ok", "raised", "log"


class RankProcess:
    """See `RankHandle`. The process starts at once and imports until `build` is called."""

    def __init__(
        self, rank: int, size: int, *, environment: Mapping[str, str] | None = None, imports: str = "quire.assembly"
    ) -> None:
        self._name = f"rank {rank} of {size}"
        self._child = ChildProcess(self._name, imports=imports, env=environment)
        with suppress(OSError):  # it has ended already, which the first call reports
            self._child.run(_serve_rank)
        self._pending: deque[Future[Any]] = deque()
        self._is_ended = False
        self._built: Callable[[float | None], Any] | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    def build(self, make: Callable[[], Any]) -> None:
        """Create the rank's worker in the process. Returns at once."""
        self._built = self.call(make)

    def wait_built(self, timeout_s: float | None) -> None:
        assert self._built is not None, "`build` was not called"
        self._built(timeout_s)

    def call(self, method: str | Callable[[], Any], *args: Any) -> Callable[[float | None], Any]:
        message = pickle.dumps((method, args), pickle.HIGHEST_PROTOCOL)
        try:
            self._child.commands.send_bytes(message)
        except OSError:
            raise self._lost() from None
        answer = Future[Any]()
        self._pending.append(answer)

        def wait(timeout_s: float | None) -> Any:
            while not answer.done():
                self._receive(timeout_s)
            return answer.result()

        return wait

    def _receive(self, timeout_s: float | None) -> None:
        reports = self._child.reports
        try:
            if timeout_s is not None and not reports.poll(timeout_s):
                raise TimeoutError(f"{self._name} has not answered for {timeout_s:g} s")
            kind, value = pickle.loads(reports.recv_bytes())
        except (EOFError, ConnectionError):
            raise self._lost() from None
        if kind == _LOG:
            handle_forwarded(value, self._name)
            return
        answer = self._pending.popleft()
        if kind == _RAISED:
            answer.set_exception(value)
        else:
            answer.set_result(value)

    def _lost(self) -> RankLost:
        self._child.wait(_END_S)
        return RankLost(self.why_lost() or f"{self._name} has closed its connection")

    def why_lost(self) -> str | None:
        end = self._child.describe_end()
        return None if end is None else f"{self._name} {end}"

    def watch(self, on_lost: Callable[[str], None]) -> None:
        process, ended = self._child.process, weakref.ref(self)

        def wait() -> None:
            process.wait()
            rank = ended()
            if rank is not None and not rank._is_ended:
                on_lost(rank.why_lost() or "")

        threading.Thread(target=wait, name=f"watch {self._name}", daemon=True).start()

    def end(self) -> None:
        self._is_ended = True
        self._child.close()


def start_rank_processes(size: int) -> list[RankProcess]:
    """Start the processes of all ranks but the first, each with its own GPU if there are any."""
    return [RankProcess(rank, size, environment=_devices_of(rank)) for rank in range(1, size)]


def _devices_of(rank: int) -> dict[str, str]:
    """Show a rank only its own GPU, numbered among the visible ones."""
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name)
    if visible is None:
        return {name: str(rank)}
    return {name: ",".join(visible.split(",")[rank : rank + 1])}


# -- in the process --------------------------------------------------------------------------------------------------


def _serve_rank(commands: Connection, reports: Connection) -> None:
    """Create a worker, then call its methods, as the first rank asks. Never returns."""
    driver = _Driver(commands, reports)
    forward_logs(lambda record: driver.send(_LOG, record), logging.WARNING)
    worker: Any = None
    guard = StepGuard()
    while True:
        function, args = driver.receive()
        guard.cancel()
        try:
            if worker is None:
                worker, value = function(*args), None
            else:
                value = getattr(worker, function)(*args)
        except Exception as error:
            driver.send(_RAISED, error)
            if worker is None:
                os._exit(1)
            if function == "execute":  # other ranks wait in no other method
                guard.start()
        else:
            driver.send(_OK, value)


class _Driver:
    """The process that drives this one. Any thread may send."""

    def __init__(self, commands: Connection, reports: Connection) -> None:
        self._commands = commands
        self._reports = reports
        self._lock = threading.Lock()

    def receive(self) -> tuple[Any, tuple[Any, ...]]:
        try:
            function, args = pickle.loads(self._commands.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        return function, args

    def send(self, kind: str, value: Any) -> None:
        try:
            data = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data) if kind == _RAISED else None  # some errors can be pickled but not unpickled
        except Exception:
            data = pickle.dumps((kind, RuntimeError(f"{type(value).__name__}: {value}")))
        with self._lock:
            try:
                self._reports.send_bytes(data)
            except OSError:
                os._exit(0)
