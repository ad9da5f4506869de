"""Work in a process of its own: bytes go in, bytes come out.

What it does to its process (a crash, all of the memory, no end) is an error for who asked, and the next question starts
another process. Answers are bytes and never pickles: what reads hostile files is not believed more than they are.
"""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from quire.system.child_processes import GROUP_SIGNALS, end_with_parent, signals_blocked

Worker = Callable[[bytes], bytes]
_DONE, _REFUSED = b"+", b"-"


class ChildError(RuntimeError):
    """The process ended, or was ended, before it had answered. The next question starts another."""


class ChildTimeout(ChildError):
    """It had not answered in the time that it had by the clock, which a busy machine may have taken from it."""


class ChildKilled(ChildError):
    """Someone else killed it: the system, where memory ran out, or a person."""


@dataclass(frozen=True)
class Limits:
    """What a process may take; None for any amount."""

    memory_bytes: int | None = 1 << 30  #: of address space, beyond what it begins with
    cpu_s: float | None = 60.0  #: of processor time, for each question, to the next full second
    wall_s: float = 120.0  #: until it has answered, its start included


class Child:
    """A worker in a process of its own, from the first question on. Threads may ask at once; one waits for the other.

    It ends with this process, however that ends.

    Args:
        make: makes the worker, there; must survive pickling. A ValueError that it or the worker raises is raised here.
        name: of the process, for messages.
        limits: of the process.
        niceness: of the process.
    """

    def __init__(self, make: Callable[[], Worker], name: str, *, limits: Limits, niceness: int = 0) -> None:
        self._make = make
        self._name = name
        self._limits = limits
        self._niceness = niceness
        self._turn = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """None where no process runs."""
        return self._process.pid if self._process is not None else None

    def ask(self, question: bytes) -> bytes:
        """The worker's answer.

        Raises:
            ValueError: as the worker raised it.
            ChildTimeout: the process took more than `wall_s`.
            ChildKilled: someone else killed it.
            ChildError: it ended in another way, or took more than its other limits.
        """
        with self._turn:
            try:
                answer = self._ask(question)
            except BaseException:  # KeyboardInterrupt too: an answer that nobody reads would be taken for the next one
                self._end()
                raise
        if answer[:1] == _DONE:
            return answer[1:]
        raise ValueError(answer[1:].decode(errors="replace"))

    def _ask(self, question: bytes) -> bytes:
        if self._process is None or not self._process.is_alive():
            self._end()
            self._start()
        if self._is_stopped:
            raise ChildError(f"the {self._name} process was stopped")
        assert self._process is not None
        assert self._connection is not None
        begin = time.monotonic()
        alarm = threading.Timer(self._limits.wall_s, self._process.kill)  # also where it does not even read
        alarm.daemon = True
        alarm.start()
        try:
            self._connection.send_bytes(question)
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            raise self._how_it_ended(time.monotonic() - begin) from None
        finally:
            alarm.cancel()

    def _how_it_ended(self, seconds: float) -> ChildError:
        assert self._process is not None
        who, status = f"the {self._name} process", self._process.exitcode or 0
        if status == -signal.SIGKILL and seconds >= self._limits.wall_s:
            return ChildTimeout(f"{who} took more than {self._limits.wall_s:g} s")
        if status == -signal.SIGKILL:
            return ChildKilled(f"{who} was killed")
        if status == -signal.SIGXCPU:
            return ChildError(f"{who} took more than {self._limits.cpu_s} s of processor time")
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return ChildError(f"{who} {how}")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would take threads' locks along, held for good
        self._connection, theirs = context.Pipe()
        niceness = os.nice(0) + self._niceness
        process = context.Process(
            target=_serve, args=(theirs, self._make, self._limits, niceness), name=self._name, daemon=True
        )
        with ThreadPoolExecutor(1) as thread:  # the process inherits what it can never give back
            thread.submit(_start_niced, process, niceness).result()
        self._process = process
        theirs.close()
        atexit.register(self._end)

    def _end(self) -> None:
        atexit.unregister(self._end)
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def close(self) -> None:
        """End the process. The next question would start another."""
        with self._turn:
            self._end()

    def stop(self) -> None:
        """End the process at once, and for good: whoever waits for an answer, or asks later, gets a ChildError."""
        self._is_stopped = True
        if (process := self._process) is not None:
            process.kill()
        self.close()


def _start_niced(process: BaseProcess, niceness: int) -> None:
    """Start a process that gives way from its first instruction on: what it imports takes longer than many answers. In
    a thread, where threads have a niceness of their own (Linux); elsewhere the process itself sees to it."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    with signals_blocked():  # the child has them blocked too, until it can ignore them
        process.start()


# -- in the process --------------------------------------------------------------------------------------------------


def _serve(connection: Connection, make: Callable[[], Worker], limits: Limits, niceness: int) -> None:
    for number in GROUP_SIGNALS:  # the parent says when to stop
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    end_with_parent()
    os.nice(niceness - os.nice(0))
    if limits.memory_bytes is not None:
        most = _address_space() + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would be as large
    worker: Worker | None = None
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            question = connection.recv_bytes()
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
            connection.send_bytes(answer)
    os._exit(0)


def _address_space() -> int:
    """Bytes; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
