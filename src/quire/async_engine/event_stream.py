"""The events of a reader's requests on their way to it, in the reader's event loop.

A reader that is slower than the engine finds fewer and larger events. Nobody waits for it, and its backlog grows with
its outputs' length alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from quire.async_engine.messages import Event, Preempted, Progress, Resumed
from quire.outputs import Delta

_MAX_PENDING = 32  # events that wait before they are joined

Pass = Callable[[int, Event], bool]  #: takes an event of a request, or says that it cannot now
Delivery = tuple["EventStream", int, Event | Exception]  #: to whom, of which of its requests, what


class OutputCollector:
    """The way into one event loop: from any thread, with one wake-up for everything that is on its way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batches: deque[list[Delivery]] = deque()
        self._is_woken = False

    def put(self, batch: list[Delivery]) -> bool:
        """Send events, and return at once. False: the loop is closed, and nobody will read them."""
        self._batches.append(batch)
        if asyncio._get_running_loop() is self._loop:  # we are in it
            self._deliver()
            return True
        if self._is_woken:
            return True
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return False
        return True

    def _deliver(self) -> None:
        self._is_woken = False  # first: a later put wakes us again
        while self._batches:
            for stream, number, event in self._batches.popleft():
                stream.put(number, event)


class EventStream:
    """The events of one reader's requests that it has not read yet. Made and used in one event loop.

    Args:
        pass_on: is offered each event that comes while the reader waits. The reader does not see the events that it
            takes, and is not woken for them: a task's turn is a good part of what a token costs.

    Attributes:
        keys: by which the engine knows the requests.
    """

    def __init__(self, pass_on: Pass | None = None) -> None:
        self.keys: list[int] = []
        self._pass_on = pass_on
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[int, Event]] = []
        self._max_pending = _MAX_PENDING
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None  #: what the reader waits for

    def put(self, number: int, event: Event | Exception) -> None:
        """Take in an event of the request with this number. An exception ends the stream."""
        waiting = self._arrival if self._arrival is not None and not self._arrival.done() else None
        if waiting is not None and self._pass_on is not None and not isinstance(event, Exception):
            try:
                if self._pass_on(number, event):
                    return
            except Exception as error:
                event = error
        if isinstance(event, Exception):
            self._error = self._error or event
        else:
            self._pending.append((number, event))
            if len(self._pending) > self._max_pending:
                self._pending = _compact(self._pending)
                self._max_pending = _MAX_PENDING + 2 * len(self._pending)
        if waiting is not None:
            waiting.set_result(None)

    async def take(self) -> list[tuple[int, Event]]:
        """All events since the last call, at least one, each with the number of its request.

        Raises:
            Exception: the one by which a request ended.
        """
        while not self._pending:
            if self._error is not None:
                raise self._error
            self._arrival = self._loop.create_future()
            await self._arrival
        events, self._pending = self._pending, []
        return events if len(events) == 1 else _compact(events)


def _compact(events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """The same events, where of each request every run of progress is one."""
    by_number: dict[int, list[list[Event]]] = {}  #: request -> runs of events that can be one
    for number, event in events:
        runs = by_number.setdefault(number, [])
        if runs and type(event) is Progress is type(runs[-1][0]):
            runs[-1].append(event)
        elif runs and {type(runs[-1][0]), type(event)} == {Preempted, Resumed}:
            runs.pop()  # they cancel out
        else:
            runs.append([event])
    return [(number, _join(run)) for number, runs in by_number.items() for run in runs]


def _join(run: list[Event]) -> Event:
    if len(run) == 1:
        return run[0]
    by_index: dict[int, list[Delta]] = {}
    for progress in run:
        assert isinstance(progress, Progress)
        for delta in progress.deltas:
            by_index.setdefault(delta.index, []).append(delta)
    return Progress([_join_deltas(deltas) for _, deltas in sorted(by_index.items())])


def _join_deltas(deltas: list[Delta]) -> Delta:
    last = deltas[-1]
    return Delta(
        last.index,
        "".join(delta.text for delta in deltas),
        [token for delta in deltas for token in delta.token_ids],
        None if last.logprobs is None else [entry for delta in deltas for entry in delta.logprobs or ()],
        last.finish_reason,
        last.stop_reason,
    )
