"""Where an engine's loop runs: what everybody who serves requests asks of that place, and the simplest such place."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from quire.async_engine.loop import EngineLoop
from quire.async_engine.messages import Command, Heartbeat, Stop
from quire.async_engine.watchdog import Watchdog

if TYPE_CHECKING:
    from quire.engine.engine import Engine  # torch with it, and a process that serves has no need of that

logger = logging.getLogger("quire")

STOP_TIMEOUT_S = 30.0  # for the step under way, when the engine is shut down


class EngineHost(Protocol):
    """Where an `EngineLoop` runs: commands go there, reports come from there."""

    @property
    def facts(self) -> Any:
        """The engine, or its `InputProcessor`; None while it is not loaded."""

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None: ...

    def send(self, command: Command) -> None:
        """Pass on a command, at once; it is lost where no engine runs any more."""

    def rest(self) -> bool:
        """End an idle loop until `wake`, and return at once. False where that gives nothing back, or nothing runs."""

    def wake(self) -> None:
        """Start the loop again."""

    def stop(self) -> None:
        """End the loop, once its step is over."""


class ThreadHost:
    """An `EngineLoop` in a thread of this process, with a watchdog beside it."""

    def __init__(self, name: str, loop: EngineLoop, hang_timeout_s: float, exit_on_hang: bool) -> None:
        self._loop = loop
        self._watchdog = Watchdog(name, lambda: loop.busy_since, hang_timeout_s, exit_on_hang=exit_on_hang)
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

    def rest(self) -> bool:
        return False  # its memory is the server's own

    def wake(self) -> None:
        raise AssertionError("it never rests")

    def stop(self) -> None:
        self.send(Stop())
        if self._thread.ident is None or self._loop.engine is None:
            return  # never started, or loading, which cannot be interrupted and ends with the process
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.error("%s has not ended within %.0f s; it is left behind", self._thread.name, STOP_TIMEOUT_S)


class Heartbeats:
    """Messages to a host that are to come back. `len` is how many are on their way. Any thread may use them."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._beats: dict[int, Future[bool]] = {}  #: by number

    def __len__(self) -> int:
        return len(self._beats)

    async def ask(self, send: Callable[[Heartbeat], bool], timeout_s: float) -> bool:
        """Whether a message comes back in time.

        Args:
            send: returns False where nobody is there to answer.
        """
        beat: Future[bool] = Future()
        number = next(self._numbers)
        self._beats[number] = beat  # first: whoever loses the engine from now on ends the wait
        try:
            return send(Heartbeat(number)) and await asyncio.wait_for(asyncio.wrap_future(beat), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._beats.pop(number, None)

    def take(self, report: Heartbeat) -> None:
        """One has come back."""
        self._end(report.number, True)

    def end(self) -> None:
        """No engine is left to answer those that are on their way."""
        for number in list(self._beats):
            self._end(number, False)

    def _end(self, number: int, has_come_back: bool) -> None:
        beat = self._beats.pop(number, None)
        if beat is not None and beat.set_running_or_notify_cancel():
            beat.set_result(has_come_back)
