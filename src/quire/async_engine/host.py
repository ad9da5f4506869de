"""Hosts: where an engine's loop runs. Here the interface, a thread and its watchdog; see `process.py` for a process."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import logging
import os
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from quire.async_engine.loop import EngineLoop
from quire.async_engine.messages import AnswerReport, Command, Heartbeat, Report, Stop
from quire.forecast import Forecast
from quire.system.fair_lock import FairLock

if TYPE_CHECKING:
    from quire.engine.engine import Engine  # would import numpy

logger = logging.getLogger("quire")

EXIT_STATUS = 70  # EX_SOFTWARE
_STDERR = 2
#: Part of a file's path -> phase of a step; by default the folder's name.
_PHASES = {
    "sampler": "sampling",
    "drawing": "sampling",
    "row_state": "sampling",
    "mask": "sampling",
    "tiers": "KV load",
}


class Watchdog:
    """A thread that checks whether the running step has taken longer than `timeout_s`.

    Native code that hangs with the interpreter lock stops this thread too. With `exit_on_hang`, each check therefore
    rearms faulthandler's timer, which writes all stacks to stderr and ends the process with status 1.
    """

    def __init__(self, name: str, loop: EngineLoop, timeout_s: float, *, exit_on_hang: bool) -> None:
        self._name = name
        self._loop = loop
        self._timeout_s = timeout_s
        self._exits = exit_on_hang
        self._period_s = min(1.0, timeout_s / 4)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        reported: float | None = None
        is_stopped = False
        while not is_stopped:
            if self._exits:
                faulthandler.dump_traceback_later(self._timeout_s + 2 * self._period_s, file=_STDERR, exit=True)
            is_stopped = self._stopped.wait(self._period_s)
            since = self._loop.busy_since
            if since is not None and since != reported and time.monotonic() - since >= self._timeout_s:
                reported = since
                self._report_hang()
        if self._exits:
            faulthandler.cancel_dump_traceback_later()

    def _report_hang(self) -> None:
        what = f"{_place_of(self._loop.thread_id)}: {self._loop.describe_step()}"
        text = "%s: a step has not ended for %.1f s, in %s; all stacks:\n%s"
        logger.critical(text, self._name, self._timeout_s, what, _stacks())
        if self._exits:
            logging.shutdown()
            os._exit(EXIT_STATUS)


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def _place_of(thread_id: int) -> str:
    """Describe the phase and the innermost place of our code in a thread, such as `sampling (runner/drawing.py:9)`."""
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        _, is_ours, place = frame.f_code.co_filename.rpartition("/quire/")
        if is_ours:
            named = (phase for part, phase in _PHASES.items() if part in place)
            return f"{next(named, place.partition('/')[0])} ({place}:{frame.f_lineno})"
        frame = frame.f_back
    return "an unknown place"


HANG_TIMEOUT_S = 120.0  # a step of a large model on a small machine may take many seconds
STOP_TIMEOUT_S = 30.0  # for the current step to end at shutdown


class EngineHost(ABC):
    """The place where an `EngineLoop` runs: it receives commands and sends reports.

    `starts_on_demand`: the first request starts it. `can_rest`: `rest` frees memory. `answers_heartbeats`: no other
    system checks the engine's health. `sets_adapters`: it obeys `SetAdapter`.
    """

    starts_on_demand = False
    can_rest = False
    answers_heartbeats = True
    sets_adapters = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._receiver: Callable[[Report], None] | None = None

    def connect(self, receiver: Callable[[Report], None]) -> None:
        """Send reports to `receiver`, from any thread."""
        self._receiver = receiver

    def _report(self, report: Report) -> None:
        assert self._receiver is not None, "`connect` comes first"
        self._receiver(report)

    @property
    @abstractmethod
    def facts(self) -> Any:
        """The engine or its `InputProcessor`; None while it is not loaded."""

    @property
    def pid(self) -> int | None:
        """The id of the engine's own process; None without one."""
        return None

    @property
    def forecast(self) -> Forecast | None:
        """The host's own forecast; None where step reports carry it."""
        return None

    @abstractmethod
    def start(self, loop: asyncio.AbstractEventLoop | None) -> None: ...

    @abstractmethod
    def send(self, command: Command) -> None:
        """Pass a command on. Returns at once; the command is lost if no engine runs any more."""

    def rest(self) -> bool:
        """End an idle loop until `wake`. Returns at once; False if that frees no memory, or nothing runs."""
        return False

    def wake(self) -> None:
        """Start the loop again."""
        raise AssertionError("this host does not rest")

    @abstractmethod
    def stop(self) -> None:
        """End the loop after its step."""


class ThreadHost(EngineHost):
    """An `EngineLoop` in a thread of this process, with a watchdog; `device` is a lock if other engines share the
    device.

    All stacks are logged after a step of `hang_timeout_s`. With `exit_on_hang` the process then ends with status 70, so
    that its supervisor restarts it.
    """

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        *,
        device: FairLock | None = None,
        hang_timeout_s: float = HANG_TIMEOUT_S,
        exit_on_hang: bool = False,
    ) -> None:
        super().__init__(name)
        self._loop = EngineLoop(name, make_engine, self._report, device)
        self._watchdog = Watchdog(name, self._loop, hang_timeout_s, exit_on_hang=exit_on_hang)
        self._thread = threading.Thread(target=self._run, name=f"engine {name}", daemon=True)

    @property
    def facts(self) -> Engine | None:
        return self._loop.engine

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._watchdog.start()
        self._thread.start()

    def _run(self) -> None:
        self._loop.run()
        self._watchdog.stop()

    def send(self, command: Command) -> None:
        self._loop.inbox.put(command)

    def stop(self) -> None:
        self.send(Stop())
        if self._thread.ident is None or self._loop.engine is None:
            return  # not started, or loading, which cannot be interrupted
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.error("%s has not ended within %.0f s; it keeps running", self._thread.name, STOP_TIMEOUT_S)


class Replies:
    """Pending questions to a host; `len` is their number. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._pending: dict[int, Future[Any]] = {}  #: by number

    def __len__(self) -> int:
        return len(self._pending)

    async def ask(self, question: Callable[[int], Command], send: Callable[[Command], bool], timeout_s: float) -> Any:
        """Send a question by `send`, which returns False if no engine runs. Returns the reply; None if it does not come
        in time."""
        reply: Future[Any] = Future()
        number = next(self._numbers)
        self._pending[number] = reply  # before sending: a loss of the engine from now on ends the wait
        try:
            if not send(question(number)):
                return None
            return await asyncio.wait_for(asyncio.wrap_future(reply), timeout_s)
        except TimeoutError:
            return None
        finally:
            self._pending.pop(number, None)

    def receive(self, report: Heartbeat | AnswerReport) -> None:
        self._end(report.number, report.value if isinstance(report, AnswerReport) else True)

    def end(self) -> None:
        """End all waits: no engine replies."""
        for number in list(self._pending):
            self._end(number, None)

    def _end(self, number: int, value: Any) -> None:
        reply = self._pending.pop(number, None)
        if reply is not None and reply.set_running_or_notify_cancel():
            reply.set_result(value)
