"""All replicas of a model as the host of one `AsyncEngine`: each request is one call of one replica through a
handle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any

from quire.async_engine import messages
from quire.async_engine.async_engine import LOAD_WAIT_S
from quire.async_engine.host import EngineHost
from quire.cluster.placement import SILENT_S, Placement, ReplicaCall
from quire.cluster.wire import ReplicaClock, pack_request
from quire.core.block_keys import extend_keys
from quire.engine.input_processor import InputProcessor
from quire.forecast import Forecast
from quire.routing.replicas import RoutedRequest

logger = logging.getLogger("quire")

_LEAST_WAIT_S = 1.0  # lower limit of waiting for a replica
_FAILED_FOR_S = 5.0  # pause after a model failed to load
_MAX_ATTEMPTS = 3  # at fetching a model's facts from replicas that die


class ReplicasHost(EngineHost):
    """The replicas of a Ray Serve deployment, as the host of one engine. Without replicas it counts as loading once a
    request wants it (`starts_on_demand`). `is_dead` tells whether a call's error means a dead replica."""

    sets_adapters = False
    answers_heartbeats = False  # Serve checks its replicas, and a call would count as use

    def __init__(
        self,
        name: str,
        handle: Any,
        *,
        is_dead: Callable[[Exception], bool],
        policy: str = "prefix",
        load_wait_s: float = LOAD_WAIT_S,
        starts_on_demand: bool = False,
        on_metrics: Callable[[Mapping[str, Sequence[float]]], None] = lambda metrics: None,
    ) -> None:
        super().__init__(name)
        self.starts_on_demand = starts_on_demand
        self._facts: InputProcessor | None = None
        self._handle = handle
        self._is_dead = is_dead
        self._generate = handle.options(method_name="generate", stream=True)
        self._placement = Placement(
            policy,
            lambda progress: self._report(messages.LoadReport(progress)),
            on_metrics,
            partial(self._in_loop, self._lose),
        )
        self._wait_s = max(_LEAST_WAIT_S, load_wait_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}  #: by key of the request
        self._running: dict[ReplicaCall, asyncio.Task[Any] | None] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._fetching: asyncio.Task[None] | None = None

    @property
    def facts(self) -> InputProcessor | None:
        return self._facts

    @property
    def forecast(self) -> Forecast | None:
        """Forecast of the replica that would answer first."""
        return self._placement.forecast

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        if not self.starts_on_demand:
            self.wake()

    def send(self, command: messages.Command) -> None:
        self._in_loop(self._handle_command, command)

    def wake(self) -> None:
        self._in_loop(self._fetch)

    def stop(self) -> None:
        self._in_loop(self._stop)

    def _in_loop(self, function: Callable[..., None], *args: Any) -> None:
        assert self._loop is not None, "the host was not started"
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(function, *args)
        else:
            self._loop.call_soon_threadsafe(function, *args)

    def _handle_command(self, command: messages.Command) -> None:
        match command:
            case messages.Add():
                task = self._create_task(self._serve(command))
                self._calls[command.key] = task
                task.add_done_callback(lambda done: self._remove(command.key, done))
            case messages.Abort(key):
                if (call := self._calls.pop(key, None)) is not None:
                    call.cancel()
            case messages.DeleteDocuments(prompts):
                self._in_background(self._delete_documents(list(prompts)))
            case _:
                pass  # the others concern an engine's own process

    def _remove(self, key: int, task: asyncio.Task[None]) -> None:
        if self._calls.get(key) is task:
            del self._calls[key]

    def _lose(self, replica: str) -> None:
        """Take its calls back from a replica that stopped reporting."""
        for call, task in self._running.items():
            if call.replica == replica and task is not None and not call.is_lost:
                call.is_lost = True
                task.cancel()

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Create a task without the HTTP request's context, by which Serve would identify and route only the first of
        several calls."""
        assert self._loop is not None
        return self._loop.create_task(work, context=Context())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task

    def _stop(self) -> None:
        for task in (*self._calls.values(), *self._others):
            task.cancel()

    async def _serve(self, add: messages.Add) -> None:
        """Call one replica and report its events to the last."""
        call = ReplicaCall(self._placement, self._describe(add), pack_request(add))
        self._running[call] = asyncio.current_task()
        timeout = self._in_background(self._time_out(add, call))
        response = self._generate.remote(call)
        try:
            why = await self._forward(add, call, response)
        except asyncio.CancelledError:
            response.cancel()
            if not call.is_lost:
                raise
            why = f"it sent no report for {SILENT_S:g} s"
        except Exception as error:  # from Ray: the replica, its machine or the network
            why = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            if call.replica is not None and self._is_dead(error):
                self._placement.lose(call.replica)
        finally:
            timeout.cancel()
            call.end()
            del self._running[call]
        if why is not None:
            logger.warning("%s: replica %s was lost with a request: %s", self.name, call.replica, why)
            self._report(messages.RequestsLost([add.key], f"replica {call.replica}: {why}"))

    async def _forward(self, add: messages.Add, call: ReplicaCall, response: Any) -> str | None:
        """Report a request's events. Returns the reason if it did not end."""
        clock = ReplicaClock()
        async for frame in response:
            report, forecast = clock.unpack_events(frame)
            last = report.events[-1][1]
            if isinstance(last, messages.EngineLost | messages.EngineUnavailable) and not isinstance(
                last, messages.QueueFull | messages.PoisonRequest
            ):
                return str(last)
            if call.replica is not None and any(isinstance(event, messages.Started) for _, event in report.events):
                self._placement.report_started(call.replica, add.request_id, forecast)
            self._report(report)
            if isinstance(last, messages.Finished | Exception):
                return None
        return "its response ended early"

    def _describe(self, add: messages.Add) -> RoutedRequest:
        """Describe a request for routing. Its block keys are valid in this router only."""
        prompt, keys = add.processed.prompt, list[bytes]()
        assert self._facts is not None
        block_size = self._facts.limits.block_size
        extend_keys(keys, b"", prompt.domains, prompt.token_ids, block_size, len(prompt.token_ids) // block_size)
        return RoutedRequest(add.request_id, add.num_known_tokens, keys, add.first_stage)

    async def _time_out(self, add: messages.Add, call: ReplicaCall) -> None:
        """Fail a request that no replica admits in time."""
        while (left_s := call.waits_since + self._wait_s - time.monotonic()) > 0 or call.replica is not None:
            await asyncio.sleep(max(left_s, 1.0))
        task = self._calls.pop(add.key, None)
        if task is None:
            return
        task.cancel()
        why = f"no replica of {self.name} was ready within {self._wait_s:g} s"
        error = (
            messages.EngineLost(f"{why}, and this request's own one was lost")
            if add.resumption is not None
            else (messages.EngineUnavailable(f"{why}; try again soon"))
        )
        self._report(messages.StepReport([(add.key, error)], [add.output("error", str(error))]))

    def _fetch(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = self._in_background(self._fetch_facts())

    async def _fetch_facts(self) -> None:
        """Start a replica if there is none, and fetch the model's facts for validating requests."""
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                facts = await self._handle.facts.remote(ReplicaCall(self._placement))
            except Exception as error:  # from Ray
                if attempts_left and self._is_dead(error):
                    continue
                facts = messages.EngineUnavailable(f"{type(error).__name__}: {error}".strip().splitlines()[0])
            break
        if isinstance(facts, InputProcessor):
            self._facts = facts = facts.isolated(self.name)
            self._report(messages.StateReport(messages.ModelState.READY, None, facts))
            return
        self._report(messages.StateReport(messages.ModelState.FAILED, str(facts)))
        await asyncio.sleep(_FAILED_FOR_S)
        self._report(messages.StateReport(messages.ModelState.UNLOADED))

    async def _delete_documents(self, prompts: list[Any]) -> None:
        """Delete KV on every replica, since each may have its own directory."""
        try:
            await self._handle.broadcast("delete_documents", prompts).results_async()
        except Exception as error:
            logger.error("%s: KV of deleted documents could not be deleted: %s", self.name, error)
