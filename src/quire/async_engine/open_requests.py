"""The open requests of one model, kept in the serving process: they survive the loss of an engine."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from quire.async_engine.event_stream import Delivery, EventStream, OutputCollector
from quire.async_engine.messages import Abort, Add, Command, Event, Finished, Preempted, Progress, Resumed, Started
from quire.outputs import Logprobs, OutputSoFar, RequestOutput, Resumption


@dataclass(slots=True)
class _Output:
    token_ids: array[int] = field(default_factory=lambda: array("i"))
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Ledger:
    """Records the delivered events of one request, from which another engine resumes it.

    Without `wants_progress` it has delivered nothing before its end, and starts again with the same random numbers.
    """

    def __init__(self, resumption: Resumption | None = None, *, wants_progress: bool = True) -> None:
        self.is_started = False  #: `Started` was delivered
        self.num_losses = 0  #: number of lost engines
        self.is_lost = resumption is not None  #: no engine has started it since the last loss
        self._wants_progress = wants_progress
        self._is_paused = False  #: `Preempted` was delivered
        self._before = resumption
        self._started: Started | None = None
        self._first_scheduled_time = resumption.first_scheduled_time if resumption is not None else None
        self._first_token_time = resumption.first_token_time if resumption is not None else None
        self._outputs: dict[int, _Output] = {}
        for index, each in enumerate(resumption.outputs if resumption is not None else ()):
            logprobs = each.logprobs[:] if each.logprobs is not None else None
            self._outputs[index] = _Output(array("i", each.token_ids), logprobs, each.finish_reason, each.stop_reason)

    def record(self, event: Event) -> Event | None:
        """Record an event. Returns the event to deliver, if any: a resumed request does not start twice."""
        if type(event) is Progress:
            if self._first_token_time is None:
                self._first_token_time = time.monotonic()
            outputs = self._outputs
            for delta in event.deltas:
                output = outputs.get(delta.index)
                if output is None:
                    output = outputs[delta.index] = _Output()
                output.token_ids.extend(delta.token_ids)
                if delta.logprobs is not None:
                    output.logprobs = output.logprobs if output.logprobs is not None else delta.logprobs[:0]
                    output.logprobs.extend(delta.logprobs)
                if delta.finish_reason is not None:
                    output.finish_reason, output.stop_reason = delta.finish_reason, delta.stop_reason
        elif type(event) is Started:
            self.is_lost = False
            if self.is_started:
                was_paused, self._is_paused = self._is_paused, False
                return Resumed() if was_paused else None
            self.is_started, self._started = True, event
            if self._first_scheduled_time is None:
                self._first_scheduled_time = time.monotonic()
        elif type(event) is Preempted or type(event) is Resumed:
            self._is_paused = type(event) is Preempted
        return event

    @property
    def has_outputs(self) -> bool:
        """Whether another engine continues behind delivered tokens."""
        return bool(self._outputs)

    def record_loss(self) -> None:
        self.num_losses += 1
        self.is_lost = True

    def pause(self) -> bool:
        """Pause the request until another engine runs it. Returns whether to deliver `Preempted`."""
        is_news = self.is_started and self._wants_progress and not self._is_paused
        self._is_paused |= is_news
        return is_news

    def resumption(self, stage: int = 1) -> Resumption | None:
        """Return the state from which another engine resumes the request; None if it has not started."""
        if self._started is None:
            return self._before
        return Resumption(
            self._started.seed,
            tuple(
                OutputSoFar(each.token_ids.tolist(), each.logprobs, each.finish_reason, each.stop_reason)
                for _, each in sorted(self._outputs.items())
            ),
            self._started.cached_tokens,
            max(self._started.stage, stage) if self._outputs else self._started.stage,
            self._first_scheduled_time,
            self._first_token_time,
        )


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request that was sent to an engine and has not ended."""

    add: Add
    stream: EventStream
    number: int  #: number in the stream
    collector: OutputCollector  #: the stream's event loop
    ledger: Ledger
    is_sent: bool = False  #: the current engine has it
    is_scheduled: bool = False  #: a step of the current engine had it
    num_suspicions: int = 0  #: lost engines that it may have ended
    first_step: int = 0  #: number of that step
    trial_steps: float = 0  #: steps to run alone in the next engine

    def notify(self, event: Event | Exception) -> None:
        """Deliver an event that no engine reports. Call it without a lock: the reader may handle the event at once."""
        self.collector.put([(self.stream, self.number, event)])


class OpenRequests:
    """Thread-safe. `len` is the number of requests; hold `lock` to combine calls.

    `num_unstarted` counts requests without a `Started` event, `unstarted` by tenant; `last_end` is the last end
    (`time.monotonic`). While `is_held`, new requests wait for `send`. `on_finished` receives the outputs of unsent
    requests.
    """

    def __init__(
        self,
        lock: threading.RLock,
        send: Callable[[Command], None],
        keys: Iterator[int],
        on_finished: Callable[[RequestOutput], None],
    ) -> None:
        self.is_held = False
        self.num_steps = 0  #: number of reports of steps
        self._keys = keys
        self._on_finished = on_finished
        self.num_unstarted = 0
        self.unstarted: Counter[str] = Counter()
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

    def add(self, add: Add, stream: EventStream, number: int) -> OpenRequest:
        """Send a request to the engine; ValueError if its id is in use. `stream` belongs to the running event loop."""
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
            self._count_unstarted(request, 1)
            if not self.is_held:
                self.send(request)
        return request

    def send(self, request: OpenRequest) -> None:
        with self._lock:
            request.is_sent = True
            self._unreceived[request.add.key] = request.add.num_known_tokens
            self._send(request.add)

    def take_back(self, request: OpenRequest, resumption: Resumption | None) -> None:
        """Take a request from its engine, for `send` to continue it. A new key tells late events of the old engine."""
        with self._lock:
            if request.is_sent:
                self._send(Abort(request.add.key, request.add.request_id, is_reported=True))
            del self._by_key[request.add.key]
            self._unreceived.pop(request.add.key, None)
            request.add = replace(request.add, key=next(self._keys), resumption=resumption)
            request.is_sent = request.is_scheduled = False
            self._by_key[request.add.key] = request
            request.stream.keys.append(request.add.key)

    def mark_scheduled(self, keys: Iterable[int]) -> None:
        """Record that a step with these requests begins."""
        with self._lock:
            for key in keys:
                if (request := self._by_key.get(key)) is not None and not request.is_scheduled:
                    request.is_scheduled, request.first_step = True, self.num_steps

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
                    if type(event) is Started and not request.ledger.is_started:
                        self._count_unstarted(request, -1)
                    shown = request.ledger.record(event)
                    if type(event) is Finished:
                        self._end(request)
                if shown is not None:
                    batches.setdefault(request.collector, []).append((request.stream, request.number, shown))
        for collector, batch in batches.items():
            if not collector.put(batch):  # the readers' event loop is closed
                for stream, _, _ in batch:
                    self.leave(stream)

    def leave(self, stream: EventStream) -> None:
        """Abort the requests of a stream whose reader has left."""
        with self._lock:
            for key in stream.keys:
                if (request := self._by_key.get(key)) is not None:
                    self._abort(request)

    def cut_off(self, request: OpenRequest, error: Exception, *, is_reported: bool = False) -> bool:
        """End a request with an error for its reader. Returns False if it had ended before.

        With `is_reported`, its end is reported elsewhere, not by the engine.
        """
        with self._lock:
            if request.add.key not in self._by_key:
                return False
            self._abort(request, is_reported=is_reported)
        request.notify(error)
        return True

    def _abort(self, request: OpenRequest, *, is_reported: bool = False) -> None:
        self._end(request)
        if not request.is_sent:  # no engine reports its end
            if not is_reported:
                self._on_finished(request.add.output("abort"))
            return
        self._send(Abort(request.add.key, request.add.request_id, is_reported))

    def _end(self, request: OpenRequest) -> None:
        add = request.add
        del self._by_key[add.key]
        self._ids.discard(add.request_id)
        self._unreceived.pop(add.key, None)
        if not request.ledger.is_started:
            self._count_unstarted(request, -1)
        self.last_end = time.monotonic()

    def _count_unstarted(self, request: OpenRequest, change: int) -> None:
        tenant = request.add.processed.owner.tenant
        self.num_unstarted += change
        self.unstarted[tenant] += change
        if not self.unstarted[tenant]:
            del self.unstarted[tenant]
