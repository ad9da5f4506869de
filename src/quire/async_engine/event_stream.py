"""Delivery of events to a reader in its event loop.

A reader that is slower than the engine gets fewer and larger events. It blocks no one, and the length of its outputs
limits its backlog.
"""

from __future__ import annotations

import asyncio
from collections import deque

from quire.async_engine.messages import Event, Preempted, Progress, Resumed
from quire.outputs import Delta

_MAX_PENDING = 32  # events that wait before they are merged
_MAX_LOGPROBS = 2048  # of a merged event, which its reader encodes at once

Delivery = tuple["EventStream", int, Event | Exception]  #: stream, number of the request, event


class OutputCollector:
    """Sends events into one event loop from any thread, with one wake-up for all pending events."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batches: deque[list[Delivery]] = deque()
        self._is_woken = False

    def put(self, batch: list[Delivery]) -> bool:
        """Send events without blocking. Returns False if the loop is closed."""
        self._batches.append(batch)
        if asyncio._get_running_loop() is self._loop:  # called in the loop
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
        self._is_woken = False  # before delivering: a later `put` wakes the loop again
        while self._batches:
            for stream, number, event in self._batches.popleft():
                stream.put(number, event)


class EventStream:
    """Unread events of one reader's requests. Create and use it in one event loop."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[int, Event]] = []
        self._max_pending = _MAX_PENDING
        self._error: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None  #: the reader's wait

    def put(self, number: int, event: Event | Exception) -> None:
        """Add an event of a request. An exception ends the stream."""
        if isinstance(event, Exception):
            self._error = self._error or event
        else:
            self._pending.append((number, event))
            if len(self._pending) > self._max_pending:
                self._pending = _compact(self._pending)
                self._max_pending = _MAX_PENDING + 2 * len(self._pending)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def read(self) -> list[tuple[int, Event]]:
        """Return all events since the last call, at least one, with their requests' numbers. Raises their errors."""
        while not self._pending:
            if self._error is not None:
                raise self._error
            self._arrival = self._loop.create_future()
            await self._arrival
        events, self._pending = self._pending, []
        return events if len(events) == 1 else _compact(events)


def _compact(events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Merge each run of progress events of a request into one."""
    by_number: dict[int, list[list[Event]]] = {}  #: runs of mergeable events by request
    for number, event in events:
        runs = by_number.setdefault(number, [])
        if runs and type(event) is Progress is type(runs[-1][0]) and _num_logprobs(event, *runs[-1]) <= _MAX_LOGPROBS:
            runs[-1].append(event)
        elif runs and {type(runs[-1][0]), type(event)} == {Preempted, Resumed}:
            runs.pop()  # they cancel out
        else:
            runs.append([event])
    return [(number, _merge(run)) for number, runs in by_number.items() for run in runs]


def _num_logprobs(*run: Event) -> int:
    if type(run[0]) is not Progress or run[0].deltas[0].logprobs is None:
        return 0
    deltas = [delta for event in run if type(event) is Progress for delta in event.deltas]
    return sum(delta.logprobs.num_entries for delta in deltas if delta.logprobs is not None)


def _merge(run: list[Event]) -> Event:
    if len(run) == 1:
        return run[0]
    by_index: dict[int, list[Delta]] = {}
    for progress in run:
        assert isinstance(progress, Progress)
        for delta in progress.deltas:
            by_index.setdefault(delta.index, []).append(delta)
    return Progress([_merge_deltas(deltas) for _, deltas in sorted(by_index.items())])


def _merge_deltas(deltas: list[Delta]) -> Delta:
    last = deltas[-1]
    logprobs = last.logprobs and last.logprobs[:0]
    for delta in deltas:
        if logprobs is not None and delta.logprobs is not None:
            logprobs.extend(delta.logprobs)
    return Delta(
        last.index,
        "".join(delta.text for delta in deltas),
        [token for delta in deltas for token in delta.token_ids],
        logprobs,
        last.finish_reason,
        last.stop_reason,
    )
