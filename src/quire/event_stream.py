"""The events of one request on their way to its reader, in the reader's event loop.

A reader that is slower than the engine finds fewer and larger events: nobody waits for it, and what is kept for it
grows with its answer's length alone. Knows events and asyncio; knows nothing about engines.
"""

from __future__ import annotations

import asyncio
from collections import deque

from quire.engine_messages import Add, Event, Preempted, Progress, Resumed
from quire.outputs import Delta

_MAX_PENDING = 32  # events that wait before those that can be one are made one


class Outbox:
    """The way into one event loop: from any thread, with one wake-up for everything that is on its way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batches: deque[list[tuple[EventStream, Event | Exception]]] = deque()
        self._is_woken = False

    def put(self, batch: list[tuple[EventStream, Event | Exception]]) -> bool:
        """Send events, and return at once. False: the loop is closed, and nobody will read them."""
        self._batches.append(batch)
        if self._is_woken:
            return True
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            return False
        return True

    def _deliver(self) -> None:
        self._is_woken = False  # first: what is put from here on wakes us again
        while self._batches:
            for stream, event in self._batches.popleft():
                stream.put(event)


class EventStream:
    """What has happened to a request and was not read yet. Only its event loop touches `put` and `next`.

    Attributes:
        add: how the request was sent.
        outbox: the way here from other threads.
        is_started: the engine has begun with it.
        is_second_try: the engine was lost once before it had begun.
    """

    def __init__(self, add: Add, outbox: Outbox) -> None:
        self.add = add
        self.outbox = outbox
        self.is_started = False
        self.is_second_try = False
        self._pending: deque[Event | Exception] = deque()
        self._arrived = asyncio.Event()

    def put(self, event: Event | Exception) -> None:
        pending = self._pending
        if pending and _cancel_out(pending[-1], event):
            pending.pop()
        else:
            pending.append(event)
            if len(pending) > _MAX_PENDING:
                self._pending = _compact(pending)
        self._arrived.set()

    async def next(self) -> Event:
        """The next event.

        Raises:
            Exception: the one by which the request ended.
        """
        while not self._pending:
            self._arrived.clear()
            await self._arrived.wait()
        if len(self._pending) > 1:
            self._pending = _compact(self._pending)
        event = self._pending.popleft()
        if isinstance(event, Exception):
            raise event
        return event


def _cancel_out(earlier: Event | Exception, later: Event | Exception) -> bool:
    pair = (type(earlier), type(later))
    return pair in ((Preempted, Resumed), (Resumed, Preempted))


def _compact(events: deque[Event | Exception]) -> deque[Event | Exception]:
    """The same events, where every run of progress is one."""
    result: deque[Event | Exception] = deque()
    run: list[Progress] = []
    for event in events:
        if isinstance(event, Progress):
            run.append(event)
            continue
        if run:
            result.append(_join(run))
            run = []
        result.append(event)
    if run:
        result.append(_join(run))
    return result


def _join(run: list[Progress]) -> Progress:
    if len(run) == 1:
        return run[0]
    by_index: dict[int, list[Delta]] = {}
    for progress in run:
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
