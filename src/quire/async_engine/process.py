"""The engine process: native code that hangs or crashes then ends the engine only, not the server."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.async_engine.host import HANG_TIMEOUT_S, STOP_TIMEOUT_S, EngineHost
from quire.async_engine.loop import MAX_PAUSE_S, Failures
from quire.async_engine.messages import (
    Command,
    FrameReader,
    Heartbeat,
    ModelState,
    Report,
    StateReport,
    Stop,
    dump,
)
from quire.async_engine.spawn import run_engine
from quire.engine.input_processor import InputProcessor
from quire.system.child_process import ChildProcess, handle_forwarded

if TYPE_CHECKING:
    from quire.engine.engine import Engine  # would import numpy

logger = logging.getLogger("quire")

_PIECE = 1 << 16  # capacity of a pipe
_POLL_S = 1.0  # interval of checks
_QUIET_S = 5.0  # silence after which a heartbeat is sent
_LOAD_SILENCE_S = 600.0  # longest time between two reports of loading; imports and slow disks take minutes
_GRACE_S = 5.0  # beyond a step's limit: the watchdog in the process goes first, since it logs the stacks
_BEAT = -1  # number of the supervisor's heartbeats


class ProcessHost(EngineHost):
    """An `EngineLoop` in its own process, which is restarted when it ends. An event loop reads its reports.

    A hanging step ends the process. A process that cannot end itself, since it is stopped or frozen, is killed some
    seconds later. Requests that it had started are resumed on the next process. After three ends within a minute the
    next process waits, longer each time. A first load without progress for `load_silence_s` fails the model until
    `wake`. `make_engine`, which the next process calls, must survive pickling. `child` is a first process that runs the
    engine already (`run_engine`). With `waits` the first `wake` starts it. `on_wake` is called in place
    of `load`, which must then follow.
    """

    can_rest = True

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        *,
        hang_timeout_s: float = HANG_TIMEOUT_S,
        load_silence_s: float = _LOAD_SILENCE_S,
        child: ChildProcess | None = None,
        waits: bool = False,
        on_wake: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name)
        self._facts: InputProcessor | None = None
        self.make_engine = make_engine
        self.starts_on_demand = waits
        self._on_wake = on_wake or self.load
        self._hang_timeout_s = hang_timeout_s
        self._load_silence_s = max(load_silence_s, hang_timeout_s)
        self._is_load_stuck = False  #: the process could not start, or was killed since its load made no progress
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()  #: for the current process, or the next one
        self._first_child = child
        self._child: ChildProcess | None = None  #: the current process, or the last one
        self._tokenizer_child: ChildProcess | None = None  #: imports while the model loads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failures = Failures()
        self._has_served = False
        self._load_error: str | None = None  #: why the current process could not load the model
        self._is_over = threading.Event()  #: no further process starts
        self._lock = threading.Lock()  #: guards the facts together with `_is_resting`
        self._is_resting = waits  #: no process runs, or it was asked to end; the next waits for `_wanted`
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=f"supervisor {name}", daemon=True)

    @property
    def facts(self) -> InputProcessor | None:
        return self._facts

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child is not None and child.is_alive() else None

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._thread.start()

    def send(self, command: Command) -> None:
        self._commands.put(command)

    def rest(self) -> bool:
        with self._lock:
            if self._facts is None:  # the process has ended; another one starts
                return False
            self._is_resting = True
            self._wanted.clear()
            self.send(Stop())
            self._commands = queue.SimpleQueue()  # later commands wait for the next process
        return True

    def wake(self) -> None:
        self._on_wake()

    def load(self) -> None:
        """Start the next process."""
        self._wanted.set()

    def stop(self) -> None:
        self._is_over.set()
        self.send(Stop())
        self._wanted.set()
        if self._thread.ident is None:
            self._kill()
            return
        if self._facts is not None:  # else it is loading, and is killed
            self._thread.join(STOP_TIMEOUT_S)
        self._kill()
        self._thread.join()

    def _kill(self) -> None:
        self._is_over.set()
        for child in (self._first_child, self._child, self._tokenizer_child):
            if child is not None:
                child.kill()

    def _supervise(self) -> None:
        while not self._is_over.is_set():
            if self._is_resting:
                self._wanted.wait()
                self._is_resting = False
                continue
            self._is_load_stuck = False
            try:
                failure = self._run()
            except Exception as error:
                failure, self._is_load_stuck = f"engine process cannot be started: {error}", True
                if self._child is not None:
                    self._child.kill()
            if self._is_resting or self._is_over.is_set():
                continue
            logger.error("%s: the %s", self.name, failure)
            self._commands = queue.SimpleQueue()  # requests are resent if necessary
            if self._is_load_stuck and not self._has_served:
                self._handle(StateReport(ModelState.FAILED, failure))
                continue
            why, pause_s = self._failures.record_failure(failure), self._failures.pause_s
            if not self._has_served and self._child and self._child.process.returncode == -signal.SIGKILL:
                # For memory, if not by a person: the next load would be, too.
                why, pause_s = f"the model could not be loaded: the {failure}", MAX_PAUSE_S
            if why is not None:
                self._handle(StateReport(ModelState.FAILED, why, retry_s=pause_s))
                if self._is_over.wait(pause_s):
                    return
            self._handle(StateReport(ModelState.LOADING, failure))

    def _run(self) -> str:
        """Run one process to its end. Returns the reason of the end."""
        child = self._child = self._first_child or ChildProcess("engine")
        if self._is_over.is_set():  # stopped while it started
            child.kill()
        if self._first_child is None:
            run_engine(child, self.name, self.make_engine, hang_timeout_s=self._hang_timeout_s)
        self._first_child = None
        if not self._has_served and self._tokenizer_child is None:
            self._tokenizer_child = ChildProcess("tokenizer", imports="quire.text.tokenizer_process")
        commands = self._commands
        writer = threading.Thread(target=_send_all, args=(commands, child.commands, child.kill), daemon=True)
        writer.start()
        assert self._loop is not None
        reports = _Reports(child.reports, self._handle, lambda: self._give_up_on(child), self._loop)
        failure = self._watch(child, reports)
        reports.finish()
        with self._lock:
            self._facts = None
        child.wait(STOP_TIMEOUT_S)
        child.kill()
        commands.put(None)
        writer.join()
        child.commands.close()
        load_error, self._load_error = self._load_error, None
        return load_error or failure or f"engine process {child.describe_end()}"

    def _watch(self, child: ChildProcess, reports: _Reports) -> str | None:
        """Wait until the process has ended or has closed its reports. Kill it if it no longer answers, or if loading
        makes no progress; returns why.

        Time is counted in checks: a suspended machine, or a stopped process group, is not the process's fault.
        """
        silent_s = 0.0
        while child.is_alive() and not reports.is_over.wait(_POLL_S):
            silent_s = silent_s + _POLL_S if reports.is_silent() else 0.0
            if self._facts is None:
                if silent_s >= self._load_silence_s:
                    self._is_load_stuck = True
                    child.kill()
                    return (
                        f"model could not be loaded: loading made no progress for {silent_s:.0f} s, and was ended; "
                        "its files may be broken or hostile, or their storage hangs"
                    )
                continue
            if silent_s == _QUIET_S:
                self.send(Heartbeat(_BEAT))
            if silent_s >= _QUIET_S + self._hang_timeout_s + _GRACE_S:
                reason = f"engine process has not answered for {silent_s:.0f} s ({_state(child.pid)}), and was killed"
                child.kill()
                return reason
        return None

    def _give_up_on(self, child: ChildProcess) -> None:
        logger.exception("%s: the engine process sent a report that cannot be read", self.name)
        child.kill()

    def _handle(self, report: Report | logging.LogRecord) -> None:
        if isinstance(report, logging.LogRecord):
            handle_forwarded(report)
            return
        if isinstance(report, StateReport):
            if report.input_processor is not None:
                child, self._tokenizer_child = self._tokenizer_child, None
                report = replace(report, input_processor=report.input_processor.isolated(self.name, child))
            self._facts = report.input_processor
            if report.state is ModelState.READY:
                self._has_served = True
                self._failures.record_ready()
            elif report.state is ModelState.FAILED and report.retry_s is None:
                if self._has_served:  # the cause may pass, such as a lack of memory
                    self._load_error = report.error
                    return
                self._wanted.clear()
                self._is_resting = True
                self._commands = queue.SimpleQueue()
        self._report(report)


class _Reports:
    """Reads an engine's reports in an event loop; if `handle` raises, it calls `give_up` and ends."""

    def __init__(
        self,
        connection: Connection,
        handle: Callable[[Any], None],
        give_up: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._handle = handle
        self._give_up = give_up
        self._loop = loop
        self._frames = FrameReader()
        self._lock = threading.Lock()
        self.is_over = threading.Event()  #: the last report is handled
        self._num_read = self._num_seen = 0  #: pieces read, and pieces seen by `is_silent`
        descriptor = connection.fileno()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(loop.add_reader, descriptor, self._receive_in, descriptor)

    def is_silent(self) -> bool:
        """Whether nothing has arrived since the last call and nothing waits in the pipe. A slow loop is not the
        process's fault."""
        num_seen, self._num_seen = self._num_seen, self._num_read
        return num_seen == self._num_seen and not self._connection.poll()

    def finish(self) -> None:
        """Read the rest in this thread: the process has ended, and the loop may have stopped."""
        while not self.is_over.is_set():
            self._connection.poll(None)
            self._receive()
        try:
            self._loop.call_soon_threadsafe(self._leave, self._connection.fileno())
        except RuntimeError:
            self._connection.close()

    def _receive_in(self, descriptor: int) -> None:
        if self.is_over.is_set():
            self._loop.remove_reader(descriptor)
        else:
            self._receive()

    def _leave(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        self._connection.close()

    def _receive(self) -> None:
        """Handle arrived messages; blocks if there are none."""
        with self._lock:
            if self.is_over.is_set():
                return
            try:
                piece = os.read(self._connection.fileno(), _PIECE)
                self._num_read += 1
                for message in self._frames.feed(piece):
                    self._handle(message)
            except BlockingIOError:  # another thread was quicker
                return
            except Exception:
                self._give_up()
                piece = b""
            if not piece:
                self.is_over.set()


def _state(pid: int) -> str:
    """Return the system's state of a process, such as "T (stopped)"."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "state unknown"
    return next((line.removeprefix("State:").strip() for line in lines if line.startswith("State:")), "")


def _send_all(messages: queue.SimpleQueue[Any], connection: Connection, give_up: Callable[[], None]) -> None:
    """Send messages until None; give up if sending fails."""
    while (message := messages.get()) is not None:
        try:
            connection.send_bytes(dump(message))
        except Exception as error:
            if not isinstance(error, OSError):
                logger.exception("a message to the engine process cannot be sent")
            give_up()
            return
