"""A worker in a child process: bytes in, bytes out (pickles would be unsafe), with limits on time and memory. After a
crash the next question starts another process."""

from __future__ import annotations

import math
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from quire.system.child_process import ChildProcess
from quire.system.memory import address_space

Worker = Callable[[bytes], bytes]
_PIPE_BYTES = 1 << 15  # half of a pipe's capacity: sending so many does not block
_DONE, _REFUSED = b"+", b"-"


class WorkerError(RuntimeError):
    """The process ended before it answered. The next question starts another."""


class WorkerTimeout(WorkerError):
    """The process did not answer in time; a busy machine may be the cause."""


class WorkerKilled(WorkerError):
    """The process was killed from outside: by a person, or by the system when memory ran out."""


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of a worker process; None is unlimited."""

    memory_bytes: int | None = 1 << 30  #: address space beyond that of the started process
    cpu_s: float | None = 60.0  #: processor time per question, rounded up to a full second
    wall_s: float = 120.0  #: time per question, including the start of the process


class WorkerProcess:
    """A worker in a child process that starts with the first question, or is `first`; threads queue. `make` creates the
    worker there; it must survive pickling, and the caller receives its ValueErrors."""

    def __init__(
        self,
        make: Callable[[], Worker],
        name: str,
        *,
        limits: WorkerLimits,
        niceness: int = 0,
        first: ChildProcess | None = None,
    ) -> None:
        self._make = make
        self._name = name
        self._limits = limits
        self._niceness = niceness
        self._first = first
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """The process id; None if no process runs."""
        return self._child.pid if self._child is not None else None

    def ask(self, question: bytes, wall_s: float | None = None) -> bytes:
        """Return the worker's answer. Raises ValueError if the worker refused, WorkerTimeout after `wall_s` seconds (by
        default the limit's), WorkerKilled if the process was killed from outside, and WorkerError if it ended otherwise
        or exceeded another limit."""
        with self._lock:
            try:
                answer = self._ask(question, wall_s or self._limits.wall_s)
            except BaseException:  # also KeyboardInterrupt: the next caller must not receive this answer
                self._end()
                raise
        if answer[:1] == _DONE:
            return answer[1:]
        raise ValueError(answer[1:].decode(errors="replace"))

    def _ask(self, question: bytes, wall_s: float) -> bytes:
        if self._child is None or not self._child.is_alive():
            self._end()
            self._child = self._start()
        if self._is_stopped:
            raise WorkerKilled(f"the {self._name} process was stopped")
        child, began = self._child, time.monotonic()
        alarm: threading.Timer | None = None
        if len(question) > _PIPE_BYTES:  # it may not even read
            alarm = threading.Timer(wall_s, child.kill)
            alarm.daemon = True
            alarm.start()
        try:
            child.commands.send_bytes(question)
            if not child.reports.poll(wall_s):
                child.kill()
            return child.reports.recv_bytes()
        except (EOFError, OSError):
            child.wait()
            raise self._describe_end(child, time.monotonic() - began, wall_s) from None
        finally:
            if alarm is not None:
                alarm.cancel()

    def _start(self) -> ChildProcess:
        child, self._first = self._first or ChildProcess(self._name, nice=self._niceness), None
        with suppress(OSError):  # it has ended already, which `_ask` reports
            child.run(_serve, self._make, self._limits)
        return child

    def _describe_end(self, child: ChildProcess, seconds: float, wall_s: float) -> WorkerError:
        name, status = f"the {self._name} process", child.process.returncode
        if status == -signal.SIGKILL and seconds >= wall_s:
            return WorkerTimeout(f"{name} took more than {wall_s:.3g} s")
        if status == -signal.SIGKILL:
            return WorkerKilled(f"{name} was killed")
        if status == -signal.SIGXCPU:
            return WorkerError(f"{name} took more than {self._limits.cpu_s} s of processor time")
        return WorkerError(f"{name} {child.describe_end()}")

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None

    def close(self) -> None:
        """End the process. The next question starts another."""
        with self._lock:
            self._end()

    def interrupt(self) -> None:
        """End the process at once: the pending question raises WorkerError, and the next one starts another."""
        if (child := self._child) is not None:
            child.kill()

    def stop(self) -> None:
        """End the process at once and for good: pending and later questions raise WorkerError."""
        self._is_stopped = True
        self.interrupt()
        self.close()


# -- in the process --------------------------------------------------------------------------------------------------


def _serve(questions: Connection, answers: Connection, make: Callable[[], Worker], limits: WorkerLimits) -> None:
    if limits.memory_bytes is not None:
        limit = address_space() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would be as large
    worker: Worker | None = None
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            question = questions.recv_bytes()
            if limits.cpu_s is not None:
                used = resource.getrusage(resource.RUSAGE_SELF)
                until = math.ceil(used.ru_utime + used.ru_stime + limits.cpu_s)
                resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            try:
                worker = worker or make()
                answer = _DONE + worker(question)
            except ValueError as error:
                answer = _REFUSED + str(error).encode(errors="replace")
            except MemoryError:
                answer = _REFUSED + b"it needs more memory than it may have"
            answers.send_bytes(answer)
