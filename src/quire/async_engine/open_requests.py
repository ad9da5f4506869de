"""The open requests of one model, kept in the serving process: they survive the loss of an engine."""

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
    """A request that was sent to an engine and has not ended."""

    add: Add
    stream: EventStream
    number: int  #: number in the stream
    collector: OutputCollector  #: the stream's event loop
    ledger: Ledger

    def notify(self, event: Event | Exception) -> None:
        """Deliver an event that no engine reports. Call it without a lock: the reader may handle the event at once."""
        self.collector.put([(self.stream, self.number, event)])


class OpenRequests:
    """Thread-safe. `len` is the number of requests.

    Args:
        lock: lock that guards the requests; hold it to combine calls.

    Attributes:
        num_unstarted: number of requests without a `Started` event.
        last_end: time of the last request's end (`time.monotonic`).
    """

    def __init__(self, lock: threading.RLock, send: Callable[[Command], None]) -> None:
        self.num_unstarted = 0
        self.last_end = 0.0
        self._lock = lock
        self._send = send
        self._by_key: dict[int, OpenRequest] = {}
        self._ids: set[str] = set()
        self._unreceived: dict[int, int] = {}  #: tokens of requests that the engine has not received yet, by key
        self._collectors: WeakValueDictionary[asyncio.AbstractEventLoop, OutputCollector] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: int) -> OpenRequest | None:
        return self._by_key.get(key)

    def values(self) -> list[OpenRequest]:
        with self._lock:
            return list(self._by_key.values())

    @property
    def unreceived(self) -> list[int]:
        """The number of tokens of each request that the engine has not received yet."""
        with self._lock:
            return list(self._unreceived.values())

    def mark_received(self, keys: Iterable[int]) -> None:
        """Record that the engine has received these requests."""
        with self._lock:
            for key in keys:
                self._unreceived.pop(key, None)

    # -- sending -----------------------------------------------------------------------------------------------------

    def add(self, add: Add, stream: EventStream, number: int) -> OpenRequest:
        """Send a request to the engine. Its events go to `stream`, which belongs to the running event loop.

        Raises:
            ValueError: a request with this id is open.
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
            self._send_request(request)
        return request

    def resend(self, request: OpenRequest, add: Add) -> None:
        """Send a request to the next engine as `add`."""
        with self._lock:
            request.add = add
            self._send_request(request)

    def _send_request(self, request: OpenRequest) -> None:
        self._unreceived[request.add.key] = request.add.num_known_tokens
        self._send(request.add)

    # -- events ------------------------------------------------------------------------------------------------------

    def deliver(self, events: Iterable[tuple[int, Event | Exception]]) -> None:
        """Deliver an engine's events, given with the requests' keys. `Finished` or an exception ends the request."""
        batches: dict[OutputCollector, list[Delivery]] = {}
        with self._lock:
            for key, event in events:
                request = self._by_key.get(key)
                if request is None:
                    continue  # its reader has left
                if isinstance(event, Exception):
                    self._end(request)
                    shown: Event | Exception | None = event
                else:
                    self.num_unstarted -= type(event) is Started and not request.ledger.is_started
                    shown = request.ledger.record(event)
                    if type(event) is Finished:
                        self._end(request)
                if shown is not None:
                    batches.setdefault(request.collector, []).append((request.stream, request.number, shown))
        for collector, batch in batches.items():
            if not collector.put(batch):  # the readers' event loop is closed
                for stream, _, _ in batch:
                    self.leave(stream)

    # -- ending ------------------------------------------------------------------------------------------------------

    def leave(self, stream: EventStream) -> None:
        """Abort the requests of a stream whose reader has left."""
        with self._lock:
            for key in stream.keys:
                if (request := self._by_key.get(key)) is not None:
                    self._abort(request)

    def cut_off(self, request: OpenRequest, error: Exception, *, is_reported: bool = False) -> bool:
        """End a request with an error for its reader. Returns False if it had ended before.

        Args:
            is_reported: its end is reported elsewhere, not by the engine.
        """
        with self._lock:
            if request.add.key not in self._by_key:
                return False
            self._abort(request, is_reported=is_reported)
        request.notify(error)
        return True

    def _abort(self, request: OpenRequest, *, is_reported: bool = False) -> None:
        self._end(request)
        self._send(Abort(request.add.key, request.add.request_id, is_reported))

    def _end(self, request: OpenRequest) -> None:
        add = request.add
        del self._by_key[add.key]
        self._ids.discard(add.request_id)
        self._unreceived.pop(add.key, None)
        self.num_unstarted -= not request.ledger.is_started
        self.last_end = time.monotonic()
