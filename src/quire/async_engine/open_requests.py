"""The requests of one model that have not ended, and the way of their events to their readers.

Kept on the side of those who serve: an engine may be lost, and its requests are sent to the next one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from quire.async_engine.event_stream import Delivery, EventStream, OutputCollector
from quire.async_engine.ledger import Ledger
from quire.async_engine.messages import Abort, Add, Command, Event, Finished, Started


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request that was sent to an engine, and has not ended."""

    add: Add
    stream: EventStream
    number: int  #: in the stream
    collector: OutputCollector  #: the way there from other threads
    ledger: Ledger

    def tell(self, event: Event | Exception) -> None:
        """Give its reader an event that no engine reports. Not under a lock: in its own loop it is read at once."""
        self.collector.put([(self.stream, self.number, event)])


class OpenRequests:
    """`len` is how many there are. Any thread may use them.

    Args:
        lock: over them. Whoever looks at them and at something else together holds it meanwhile.
        send: takes commands to the engine.

    Attributes:
        num_unstarted: those whose readers have not been told that they have begun.
        last_end: when the last one ended, by `time.monotonic`.
    """

    def __init__(self, lock: threading.RLock, send: Callable[[Command], None]) -> None:
        self.num_unstarted = 0
        self.last_end = 0.0
        self._lock = lock
        self._send = send
        self._by_key: dict[int, OpenRequest] = {}
        self._ids: set[str] = set()
        self._untaken: dict[int, int] = {}  #: by key, tokens of those that the engine has not reported to have
        self._collectors: WeakValueDictionary[asyncio.AbstractEventLoop, OutputCollector] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: int) -> OpenRequest | None:
        return self._by_key.get(key)

    def values(self) -> list[OpenRequest]:
        with self._lock:
            return list(self._by_key.values())

    @property
    def untaken(self) -> list[int]:
        """Tokens of each request that is on its way to the engine."""
        with self._lock:
            return list(self._untaken.values())

    def note_taken(self, keys: Iterable[int]) -> None:
        """The engine has these requests."""
        with self._lock:
            for key in keys:
                self._untaken.pop(key, None)

    # -- they come ---------------------------------------------------------------------------------------------------

    def add(self, add: Add, stream: EventStream, number: int) -> OpenRequest:
        """Send a request to the engine. Its events go to `stream`, which is the running event loop's, as those of the
        request of that number.

        Raises:
            ValueError: one with its id is open.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if add.request_id in self._ids:
                raise ValueError(f"request id {add.request_id!r} is in use")
            collector = self._collectors.get(loop)
            if collector is None:
                collector = self._collectors[loop] = OutputCollector(loop)
            ledger = Ledger(add.resumption, wants_progress=add.wants_progress)
            request = self._by_key[add.key] = OpenRequest(add, stream, number, collector, ledger)
            stream.keys.append(add.key)
            self._ids.add(add.request_id)
            self.num_unstarted += 1
            self._pass_on(request)
        return request

    def add_again(self, request: OpenRequest, add: Add) -> None:
        """Send a request to the next engine, in the form of `add`."""
        with self._lock:
            request.add = add
            self._pass_on(request)

    def _pass_on(self, request: OpenRequest) -> None:
        self._untaken[request.add.key] = request.add.num_known_tokens
        self._send(request.add)

    # -- their events ------------------------------------------------------------------------------------------------

    def take(self, events: Iterable[tuple[int, Event | Exception]]) -> None:
        """Hand on what an engine reports, by the requests' keys. An exception ends its request, as `Finished` does."""
        batches: dict[OutputCollector, list[Delivery]] = {}
        with self._lock:
            for key, event in events:
                request = self._by_key.get(key)
                if request is None:
                    continue  # its reader has gone
                if isinstance(event, Exception):
                    self._end(request)
                    shown: Event | Exception | None = event
                else:
                    self.num_unstarted -= type(event) is Started and not request.ledger.is_started
                    shown = request.ledger.take(event)
                    if type(event) is Finished:
                        self._end(request)
                if shown is not None:
                    batches.setdefault(request.collector, []).append((request.stream, request.number, shown))
        for collector, batch in batches.items():
            if not collector.put(batch):  # the readers' event loop was closed under them
                for stream, _, _ in batch:
                    self.leave(stream)

    # -- they go -----------------------------------------------------------------------------------------------------

    def leave(self, stream: EventStream) -> None:
        """Nobody reads a stream any more: abort its requests."""
        with self._lock:
            for key in stream.keys:
                if (request := self._by_key.get(key)) is not None:
                    self._abort(request)

    def cut_off(self, request: OpenRequest, error: Exception, *, is_told: bool = False) -> bool:
        """End a request from here, and tell its reader. False where it had ended before.

        Args:
            is_told: the engine need not report its end.
        """
        with self._lock:
            if request.add.key not in self._by_key:
                return False
            self._abort(request, is_told=is_told)
        request.tell(error)
        return True

    def _abort(self, request: OpenRequest, *, is_told: bool = False) -> None:
        self._end(request)
        self._send(Abort(request.add.key, request.add.request_id, is_told))

    def _end(self, request: OpenRequest) -> None:
        add = request.add
        del self._by_key[add.key]
        self._ids.discard(add.request_id)
        self._untaken.pop(add.key, None)
        self.num_unstarted -= not request.ledger.is_started
        self.last_end = time.monotonic()
