"""An engine behind asyncio: requests from any event loop, steps in a thread, another process or Ray replicas."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from quire.async_engine.event_stream import EventStream
from quire.async_engine.failover import Failover
from quire.async_engine.host import EngineHost, Heartbeats
from quire.async_engine.load_watch import Door, LoadWatch
from quire.async_engine.messages import (
    Add,
    EngineUnavailable,
    Forget,
    Heartbeat,
    LoadReport,
    Lost,
    ModelState,
    QueueFull,
    Report,
    StateReport,
    StepReport,
)
from quire.async_engine.open_requests import OpenRequests
from quire.config import SchedulerConfig
from quire.engine.input_processor import InputProcessor
from quire.forecast import Forecast
from quire.outputs import LoadProgress, RequestOutput, Resumption, Stats
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.structured.checker import GrammarChecker, TooManyGrammars

logger = logging.getLogger("quire")

LOAD_WAIT_S = 120.0  # for a model that is being loaded
_POLL_S = 0.02  # while something is waited for that happens once in a process's life


class AsyncEngine:
    """Serve requests from asyncio on one engine. Call `start` first and `shutdown` last. All methods are thread-safe;
    `submit` may be called from any event loop.

    Args:
        host: the place where the engine runs: a thread, a process or Ray replicas.
        max_queue: limit of waiting requests, including those that wait for the model; None for no limit.
        load_wait_s: seconds that requests wait for a model that is being loaded.
        on_stats: receives the stats of each step. Called in the thread that reads the engine's reports; must be quick.
        on_finished: receives the output of each request that has ended; called like `on_stats`.
        on_ready: receives the engine's limits after each load; called like `on_stats`.
        on_accepted: receives n and max_tokens of each queued request; called by its sender.
        on_load: receives each change of `load_progress`, in any thread.
    """

    def __init__(
        self,
        host: EngineHost,
        *,
        max_queue: int | None = None,
        load_wait_s: float = LOAD_WAIT_S,
        on_stats: Callable[[Stats], None] | None = None,
        on_finished: Callable[[RequestOutput], None] | None = None,
        on_ready: Callable[[SchedulerConfig], None] | None = None,
        on_accepted: Callable[[int, int | None], None] | None = None,
        on_load: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.name = name = host.name
        self._on_stats = on_stats
        self._on_finished = on_finished
        self._on_ready = on_ready
        self._on_accepted = on_accepted
        self._lock = threading.RLock()  # over the engine's state and the requests together
        self._input_processor: InputProcessor | None = None
        self._forecast: Forecast | None = None  #: the engine's latest
        self._last_use = 0.0  #: `time.monotonic`
        self._keys = itertools.count()
        self._grammars = GrammarChecker()
        self._host = host
        host.connect(self._take_report)
        self._heartbeats = Heartbeats()
        self._loading = LoadWatch(name, partial(self._call, on_load))
        self._sent = OpenRequests(self._lock, self._host.send)
        self._door = Door(name, self._sent, self._lock, self._host.wake, max_queue=max_queue, wait_s=load_wait_s)
        self._failover = Failover(
            name, self._sent, self._loading, self._lock, load_wait_s, partial(self._call, on_finished)
        )
        if host.starts_on_demand:
            self._door.state = ModelState.UNLOADED

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ModelState:
        return self._door.shown_state

    @property
    def error(self) -> str | None:
        """Why it has failed, or is being loaded again."""
        return self._door.error

    @property
    def num_requests(self) -> int:
        """Requests that run or wait."""
        return len(self._sent) + len(self._door)

    @property
    def num_queued(self) -> int:
        """Of them, requests that have not started, and those that wait for the model."""
        return self._door.num_queued

    @property
    def load_progress(self) -> LoadProgress | None:
        """How far the model has come. None before `start`."""
        return self._loading.progress

    @property
    def idle_s(self) -> float:
        """Seconds since it had a request, or more of it arrived; 0 where it has one now, or takes none."""
        with self._lock:
            is_idle = self.state is ModelState.READY and not self._sent
            return time.monotonic() - max(self._last_use, self._sent.last_end) if is_idle else 0.0

    @property
    def is_known(self) -> bool:
        """Whether `engine` and `limits` tell the facts. They stay known while the model is loaded again."""
        return self._input_processor is not None and self._door.state is not ModelState.FAILED

    @property
    def num_stages(self) -> int:
        """In which the model arrives; 1 where that is not known."""
        return self._input_processor.num_stages if self._input_processor is not None else 1

    @property
    def last_stage(self) -> int:
        """The last one that will serve, likewise."""
        return self._input_processor.last_stage if self._input_processor is not None else 1

    @property
    def limits(self) -> SchedulerConfig:
        """The numbers of blocks, sequences and tokens that the engine works with. `EngineUnavailable` before they are
        known."""
        if self._input_processor is None:
            raise self._door.unavailable()
        return self._input_processor.limits

    @property
    def engine(self) -> Any:
        """The `Engine`, for reading facts: tokenizer, vocab_size, max_model_len, default_sampling_params. While it is
        loaded again, its `InputProcessor`. `EngineUnavailable` where they are not known."""
        facts = self._host.facts or (self._input_processor if self.is_known else None)
        if facts is None:
            raise self._door.unavailable()
        return facts

    @property
    def forecast(self) -> Forecast | None:
        """Forecast for a request that is sent now (`Forecast.predict`); None if the model takes no requests."""
        if (own := self._host.forecast) is not None:
            return own
        with self._lock:
            if self.state is not ModelState.READY or self._forecast is None:
                return None
            untaken = self._sent.untaken
            return self._forecast.later(time.monotonic() - self._forecast.time, len(untaken), sum(untaken))

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the host, which loads the model.

        Args:
            loop: event loop that reads the reports of another process; the running one by default. It must run until
                `shutdown` returns, in another thread.
        """
        self._loading.begin()
        self._host.start(loop)

    async def wait_ready(self) -> None:
        """Wait until the model is loaded, however long that takes, or raise `EngineUnavailable` where it cannot be."""
        while self.state is ModelState.LOADING:
            await asyncio.sleep(_POLL_S)
        if self.state not in (ModelState.READY, ModelState.UNLOADED):
            raise self._door.unavailable()

    async def wait_open(self) -> InputProcessor:
        """Wait until the model takes requests, and have it loaded where it was unloaded. Who waits counts as queued.

        Raises:
            EngineUnavailable: it does not within `load_wait_s`, or never will.
            QueueFull: too many wait.
        """
        self._last_use = time.monotonic()
        await self._door.wait()
        with self._lock:
            self._last_use = time.monotonic()
            self._door.check()
            assert self._input_processor is not None
            return self._input_processor

    def unload(self) -> bool:
        """Give the memory of an idle engine back, until the next request. Returns at once; False where it has work,
        or shares its process with others."""
        idle_s = self.idle_s
        with self._lock:
            if self.state is not ModelState.READY or self._sent or not self._host.rest():
                return False
            self._door.state = ModelState.UNLOADED
            self._forecast = None
        logger.info("%s: %s, after %.0f s without a request", self.name, ModelState.UNLOADED, idle_s)
        self._heartbeats.end()
        self._loading.note_unloaded()
        return True

    async def heartbeat(self, timeout_s: float) -> bool:
        """Whether a message comes back from the engine in time. A step under way may delay it; the loss of the engine
        ends the wait."""
        if not self._host.answers_heartbeats:
            return True
        return await self._heartbeats.ask(self._send_heartbeat, timeout_s)

    def _send_heartbeat(self, heartbeat: Heartbeat) -> bool:
        if self._door.state is not ModelState.READY:
            return False
        self._host.send(heartbeat)
        return True

    # -- requests ----------------------------------------------------------------------------------------------------

    async def submit(
        self,
        stream: EventStream,
        prompt: PromptLike,
        params: SamplingParams | BeamSearchParams | None = None,
        *,
        request_id: str,
        number: int = 0,
        priority: int = 0,
        min_stage: int = 1,
        wants_progress: bool = True,
        resumption: Resumption | None = None,
    ) -> None:
        """Send a request; its events come to `stream`. The reader calls `leave` when done. Where the model is being
        loaded, it waits for that (`wait_open`).

        Where the engine is lost after it has begun with the request, another one goes on behind the events that have
        come, with the same tokens; until then the request counts as preempted.

        Args:
            stream: of the running event loop; it may take the events of several requests.
            prompt: text, token ids or a `Prompt`.
            params: how to choose tokens; None takes the model's own defaults.
            request_id: unique among those alive.
            number: stands beside the request's events.
            priority: smaller goes first.
            min_stage: of the model, before which the request does not begin.
            wants_progress: False gives only `Started` and `Finished`. So does beam search.
            resumption: the request was elsewhere before, and goes on behind that (`Ledger.resumption`).

        Raises:
            ValueError: it can never be served.
            EngineUnavailable: the model takes no requests, or is not loaded in time. The stream raises it, too, where
                the model is shut down before the request has ended; `RequestFailed` where the request ends with an
                error; and `EngineLost` where `MAX_LOSSES` engines were lost with it, or none is there again within
                `load_wait_s`, or not the stage of the model at which the request was.
            QueueFull: too many requests wait.
        """
        arrival_time = time.monotonic()
        if isinstance(params, SamplingParams) and params.structured_outputs is not None:
            await self.check_grammar(params.structured_outputs)
        is_sent = False
        while not is_sent:  # or the engine was lost, or unloaded, in between
            accept = partial((await self.wait_open()).accept, priority=priority, min_stage=min_stage)
            processed = await asyncio.to_thread(accept, prompt, params)
            key = next(self._keys)
            add = Add(key, request_id, processed, arrival_time, wants_progress, resumption, serial=key)
            is_sent = self._send(stream, number, add)
        self._call(self._on_accepted, processed.n, processed.max_tokens)

    async def forward(self, stream: EventStream, add: Add, *, number: int = 0) -> None:
        """As `submit`, for a request that was processed elsewhere; it gets a key of its own here."""
        is_sent = False
        while not is_sent:
            await self.wait_open()
            is_sent = self._send(stream, number, replace(add, key=next(self._keys)))
        self._call(self._on_accepted, add.processed.n, add.processed.max_tokens)

    async def check_grammar(self, wanted: StructuredOutputsParams, *, owner: str = "") -> None:
        """Try a grammar in a process of its own, as `submit` does, which then need not wait for it again.

        Args:
            owner: whose it is; owners are served in turns.

        Raises:
            GrammarError: it is not supported, or too complex; the message says what.
            QueueFull: too many grammars wait to be tried.
        """
        try:
            await self._grammars.check(wanted, owner)
        except TooManyGrammars as error:
            raise QueueFull(str(error)) from None

    def forget(self, prompts: Sequence[tuple[Prompt, int]]) -> None:
        """Have the KV of the prompts' documents deleted from disk, soon (`Engine.forget`), or once the model is loaded
        again. It takes the engine about 0.1 ms a prompt, and as long as a look at all that is on disk.
        """
        self._host.send(Forget(tuple(prompts)))

    def leave(self, stream: EventStream) -> None:
        """Nobody reads a stream any more: abort its requests that have not ended."""
        self._sent.leave(stream)

    def _send(self, stream: EventStream, number: int, add: Add) -> bool:
        """Send a request to the engine. False where that is being loaded."""
        with self._lock:
            if self._door.is_coming:
                return False
            self._door.check()
            request = self._sent.add(add, stream, number)
            if add.resumption is not None:
                self._failover.watch(request)
        return True

    # -- reports -----------------------------------------------------------------------------------------------------

    def _take_report(self, report: Report) -> None:
        """In the engine's thread: hand on a report."""
        match report:
            case StepReport():
                self._take_step(report)
            case StateReport():
                self._take_state(report)
            case Lost():
                self._take_lost(report)
            case LoadReport():
                self._take_load(report.progress)
            case Heartbeat():
                self._heartbeats.take(report)

    def _take_load(self, progress: LoadProgress) -> None:
        if self._door.state is ModelState.UNLOADED:
            return  # it was on its way
        if progress.error is None:
            self._last_use = time.monotonic()  # what still arrives is not idle
        self._loading.take(progress, is_ready=self._door.state is ModelState.READY)

    def _take_step(self, report: StepReport) -> None:
        if report.stats is not None:
            self._call(self._on_stats, report.stats)
        for output in report.outputs:
            self._call(self._on_finished, output)
        forecast = report.stats.forecast if report.stats is not None else None
        with self._lock:
            self._forecast = forecast or self._forecast
            self._sent.note_taken(report.taken)
        self._sent.take(report.events)

    def _call(self, listener: Callable[..., None] | None, *values: Any) -> None:
        if listener is None:
            return
        try:
            listener(*values)
        except Exception:
            logger.exception("%s: a listener failed", self.name)

    def _take_state(self, report: StateReport) -> None:
        if report.state is ModelState.FAILED:
            logger.error("%s: %s", self.name, report.error)
        else:
            logger.info("%s: %s", self.name, report.state)
        losses = None
        with self._lock:
            self._door.set_state(report.state, report.error)
            if report.input_processor is not None:
                self._input_processor = report.input_processor
                self._forecast = report.forecast
            self._last_use = time.monotonic()
            if report.state is ModelState.LOADING:
                losses = self._failover.send_again(self._sent.values(), report.error)
            elif report.state is not ModelState.READY:
                losses = self._failover.give_up(self._sent.values())
        if report.state is not ModelState.READY:
            self._heartbeats.end()
        if report.state is ModelState.LOADING:
            self._loading.begin()
        if report.input_processor is not None:
            self._call(self._on_ready, report.input_processor.limits)
            if self.num_stages == 1:
                self._loading.note_ready()
        if report.state is ModelState.FAILED:
            self._loading.note_failed(report.error)
        if losses is not None:
            self._failover.tell(losses, report.error)

    def _take_lost(self, report: Lost) -> None:
        with self._lock:
            lost = [request for key in report.keys if (request := self._sent.get(key)) is not None]
            losses = self._failover.send_again(lost, report.error)
        self._failover.tell(losses, report.error)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> int:
        """Take no further requests, and let the present ones finish.

        Returns:
            The number of requests that had not finished in time and were cut off.
        """
        self._door.close()
        deadline = time.monotonic() + timeout_s
        while self._sent and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(_POLL_S, left_s))
        return self._end_all()

    def shutdown(self) -> None:
        """Cut off what still runs, and end the thread once its step is over."""
        self._door.close()
        self._end_all()
        self._failover.close()
        self._grammars.close()
        self._host.stop()

    def _end_all(self) -> int:
        message = f"{self.name} was shut down before this request had ended"
        return sum(self._sent.cut_off(request, EngineUnavailable(message)) for request in self._sent.values())
