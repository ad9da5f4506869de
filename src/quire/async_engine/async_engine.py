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
from typing import Any, TypeVar

from quire.async_engine.adapters import AdapterChanges
from quire.async_engine.admission_gate import AdmissionGate
from quire.async_engine.event_stream import EventStream
from quire.async_engine.failover import Failover, Losses
from quire.async_engine.host import EngineHost, Replies
from quire.async_engine.live_view import LiveView
from quire.async_engine.load_watch import LoadWatch
from quire.async_engine.messages import (
    Add,
    AnswerReport,
    Command,
    DeleteDocuments,
    EngineUnavailable,
    Heartbeat,
    LoadReport,
    Look,
    ModelState,
    QueueFull,
    Report,
    RequestsLost,
    StateReport,
    StepReport,
)
from quire.async_engine.open_requests import OpenRequests
from quire.config import SchedulerConfig
from quire.core.request import NO_OWNER, Owner
from quire.engine.input_processor import InputProcessor
from quire.forecast import Forecast
from quire.outputs import LoadProgress, RequestOutput, Resumption, Stats
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.structured.checker import GrammarChecker, TooManyGrammars
from quire.system.fair_executor import FairExecutor
from quire.system.worker_process import WorkerError

logger = logging.getLogger("quire")

T = TypeVar("T")
LOAD_WAIT_S = 120.0
_POLL_S = 0.02
_NUM_THREADS = 2  # one process renders and encodes, so more would only let an owner's texts queue there


class AsyncEngine:
    """Serve requests from asyncio on one engine. Call `start` first and `shutdown` last. All methods are thread-safe;
    `submit` may be called from any event loop.

    Args:
        max_queue: limit of waiting requests, including those that wait for the model; None for no limit.
        load_wait_s: seconds that requests wait for a model that is being loaded.
        on_stats: receives the stats of each step, in the thread that reads the engine's reports; must be quick.
        on_finished, on_ready: likewise receive each ended request's output, and the limits after each load.
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
        self._on_stats, self._on_finished = on_stats, on_finished
        self._on_ready, self._on_accepted = on_ready, on_accepted
        self._lock = threading.RLock()  # guards the engine's state and the requests together
        self._input_processor: InputProcessor | None = None
        self._forecast: Forecast | None = None  #: the engine's latest forecast
        self._last_use = 0.0  #: `time.monotonic`
        self.has_wrong_kv = False  #: an audit has found some (`engine.kv_auditor`)
        self._keys = itertools.count()
        self._grammars = GrammarChecker()
        self._threads = FairExecutor(f"text {name}", _NUM_THREADS)
        self._host = host
        host.connect(self._handle_report)
        self._replies = Replies()
        self.adapters = AdapterChanges(host, self._replies, self._ask)
        self._loading = LoadWatch(name, partial(self._call, on_load))
        end = partial(self._call, on_finished)
        self._sent = OpenRequests(self._lock, self._host.send, self._keys, end)
        self.gate = AdmissionGate(name, self._sent, self._lock, host.wake, max_queue=max_queue, wait_s=load_wait_s)
        self._failover = Failover(name, self._sent, self._loading, self._lock, load_wait_s, end)
        self.can_unload = host.can_rest
        if host.starts_on_demand:
            self.gate.state = ModelState.UNLOADED

    @property
    def state(self) -> ModelState:
        return self.gate.shown_state

    @property
    def error(self) -> str | None:
        """The reason for a failure or a reload."""
        return self.gate.error

    @property
    def pid(self) -> int | None:
        """The id of the engine's own process; None without one."""
        return self._host.pid

    @property
    def is_given_up(self) -> bool:
        """Whether the model has failed and is not loaded again by itself."""
        return self.state is ModelState.FAILED and self.gate.retry_at is None

    @property
    def has_served(self) -> bool:
        """Whether the model was ready before."""
        return self._input_processor is not None

    @property
    def num_requests(self) -> int:
        """Number of running and waiting requests."""
        return len(self._sent) + len(self.gate)

    @property
    def num_queued(self) -> int:
        """Number of requests that have not started, including those that wait for the model."""
        return self.gate.num_queued

    @property
    def load_progress(self) -> LoadProgress | None:
        """Progress of loading; None before `start`."""
        return self._loading.progress

    @property
    def last_end(self) -> float:
        """Time of the last end of a request (`time.monotonic`); 0 before."""
        return self._sent.last_end

    @property
    def idle_s(self) -> float:
        """Seconds since the last request or loading progress; 0 while it has requests or takes none."""
        with self._lock:
            is_idle = self.state is ModelState.READY and not self._sent and not self._threads.num_open
            return time.monotonic() - max(self._last_use, self.last_end) if is_idle else 0.0

    @property
    def is_known(self) -> bool:
        """Whether `engine` and `limits` are known. They stay known while the model is loaded again."""
        return self._input_processor is not None and self.gate.state is not ModelState.FAILED

    @property
    def num_stages(self) -> int:
        """Number of the model's stages; 1 if unknown."""
        return self._input_processor.num_stages if self._input_processor is not None else 1

    @property
    def last_stage(self) -> int:
        """The last stage to be served; 1 if unknown."""
        return self._input_processor.last_stage if self._input_processor is not None else 1

    @property
    def limits(self) -> SchedulerConfig:
        """The engine's limits of blocks, sequences and tokens. Raises EngineUnavailable before they are known."""
        if self._input_processor is None:
            raise self.gate.unavailable()
        return self._input_processor.limits

    @property
    def engine(self) -> Any:
        """The `Engine` or its `InputProcessor`, for reading facts: tokenizer, vocab_size, max_model_len,
        default_sampling_params. Raises EngineUnavailable before they are known."""
        facts = self._host.facts or (self._input_processor if self.is_known else None)
        if facts is None:
            raise self.gate.unavailable()
        return facts

    @property
    def forecast(self) -> Forecast | None:
        """Forecast for a request that is sent now (`Forecast.predict`); None if the model takes no requests."""
        if (own := self._host.forecast) is not None:
            return own
        with self._lock:
            if self.state is not ModelState.READY or self._forecast is None:
                return None
            unreceived = self._sent.unreceived
            return self._forecast.later(time.monotonic() - self._forecast.time, len(unreceived), sum(unreceived))

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the host, which loads the model. `loop` reads the reports of another process; it must run until
        `shutdown` returns, in another thread."""
        self._loading.report_start()
        self._host.start(loop)

    async def in_thread(self, owner: str, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function that renders or encodes in a thread of this model. Owners (tenants) are served in turn.

        Raises EngineUnavailable if the process that encodes was killed.
        """
        try:
            return await asyncio.wrap_future(self._threads.submit(partial(function, *args, **options), owner))
        except WorkerError as error:
            raise EngineUnavailable(f"{self.name}: {error}; try again") from None

    async def wait_ready(self) -> None:
        """Wait until the model is loaded. Raises EngineUnavailable if that fails."""
        while self.state is ModelState.LOADING:
            await asyncio.sleep(_POLL_S)
        if self.state not in (ModelState.READY, ModelState.UNLOADED):
            raise self.gate.unavailable()

    async def wait_open(self, tenant: str = "") -> InputProcessor:
        """Wait until the model takes requests, and load it if it was unloaded. A waiting caller counts as queued.

        EngineUnavailable if it is not ready within `load_wait_s` or has failed; QueueFull if too many wait.
        """
        self._last_use = time.monotonic()
        await self.gate.wait()
        with self._lock:
            self._last_use = time.monotonic()
            self.gate.check(tenant)
            assert self._input_processor is not None
            return self._input_processor

    def unload(self) -> bool:
        """Free the memory of an idle engine until the next request. Returns at once; False if the engine has work or
        shares its process."""
        idle_s = self.idle_s
        with self._lock:
            if self.state is not ModelState.READY or self._sent or not self._host.rest():
                return False
            self.gate.state = ModelState.UNLOADED
            self._forecast = None
        logger.info("%s: %s, after %.0f s without a request", self.name, ModelState.UNLOADED, idle_s)
        self._replies.end()
        self._loading.change(stage=0, bytes_loaded=0, seconds_left=None, phase="unloaded")
        return True

    async def heartbeat(self, timeout_s: float) -> bool:
        """Return whether the engine answers in time. A running step delays the answer; a lost engine ends the wait."""
        return not self._host.answers_heartbeats or bool(await self._replies.ask(Heartbeat, self._ask, timeout_s))

    async def look(self, timeout_s: float) -> LiveView | None:
        """Return a view of the engine; None if it has none, or does not answer in time (see `heartbeat`)."""
        return await self._replies.ask(Look, self._ask, timeout_s) if self._host.answers_heartbeats else None

    def _ask(self, question: Command) -> bool:
        if is_ready := self.gate.state is ModelState.READY:
            self._host.send(question)
        return is_ready

    async def submit(
        self,
        stream: EventStream,
        prompt: PromptLike,
        params: SamplingParams | BeamSearchParams | None = None,
        *,
        request_id: str,
        number: int = 0,
        priority: int = 0,
        owner: Owner = NO_OWNER,
        min_stage: int = 1,
        wants_progress: bool = True,
        resumption: Resumption | None = None,
    ) -> None:
        """Send a request once the model takes it (`wait_open`). Its events go to `stream`; the reader calls `leave`
        when done.

        If the engine is lost, its replacement continues behind the delivered events with the same tokens; until then
        the request counts as preempted.

        Args:
            stream: a stream of the running event loop, which may serve several requests, by `number`.
            priority: smaller goes first.
            wants_progress: False sends only `Started` and `Finished`. So does beam search.
            resumption: state of a request that ran elsewhere before.

        Raises:
            ValueError: the request can never be served.
            QueueFull: too many requests wait.
            EngineUnavailable: the model takes no requests, or is not loaded in time. The stream also raises it at
                shutdown, `RequestFailed` for a failed request, `PoisonRequest` if two engines were lost with it, and
                `EngineLost` if no engine serves the request's stage within `load_wait_s`.
        """
        arrival_time = time.monotonic()
        if isinstance(params, SamplingParams) and params.structured_outputs is not None:
            await self.check_grammar(params.structured_outputs)
        is_sent = False
        while not is_sent:  # else the engine was lost or unloaded in between
            accept = (await self.wait_open(owner.tenant)).accept
            accept = partial(accept, priority=priority, min_stage=min_stage, owner=owner)
            processed = await self.in_thread(owner.tenant, accept, prompt, params)
            key = next(self._keys)
            add = Add(key, request_id, processed, arrival_time, wants_progress, resumption, serial=key)
            is_sent = self._send(stream, number, add)
        self._call(self._on_accepted, processed.n, processed.max_tokens)

    async def forward(self, stream: EventStream, add: Add, *, number: int = 0) -> None:
        """As `submit`, for a request that was processed elsewhere. It gets a new key."""
        is_sent = False
        while not is_sent:
            await self.wait_open(add.processed.owner.tenant)
            is_sent = self._send(stream, number, replace(add, key=next(self._keys)))
        self._call(self._on_accepted, add.processed.n, add.processed.max_tokens)

    async def check_grammar(self, wanted: StructuredOutputsParams, *, owner: str = "") -> None:
        """Check a grammar in a child process; `submit` then does not wait for it again. Owners (tenants) are served in
        turn.

        GrammarError if it is not supported or too complex; QueueFull if too many grammars wait.
        """
        try:
            await self._grammars.check(wanted, owner)
        except TooManyGrammars as error:
            raise QueueFull(str(error)) from None

    def delete_documents(self, prompts: Sequence[tuple[Prompt, int]]) -> None:
        """Delete the KV of the prompts' documents from disk (`Engine.delete_documents`): soon, or after the next load.

        It takes the engine about 0.1 ms per prompt, and one pass over the index of blocks on disk.
        """
        self._host.send(DeleteDocuments(tuple(prompts)))

    def leave(self, stream: EventStream) -> None:
        """Abort the open requests of a stream whose reader has left."""
        self._sent.leave(stream)

    def _send(self, stream: EventStream, number: int, add: Add) -> bool:
        """Send a request to the engine. Returns False while the model is pending."""
        with self._lock:
            if self.gate.is_pending:
                return False
            self.gate.check(add.processed.owner.tenant)
            request = self._sent.add(add, stream, number)
            if add.resumption is not None:
                self._failover.watch(request)
        return True

    def _handle_report(self, report: Report) -> None:
        match report:
            case StepReport():
                self._handle_step(report)
            case StateReport():
                self._handle_state(report)
            case RequestsLost(keys, error):
                with self._lock:
                    lost = [request for key in keys if (request := self._sent.get(key)) is not None]
                    losses = self._failover.resend(lost, error)
                self._failover.notify(losses, error)
            case LoadReport(progress) if self.gate.state is not ModelState.UNLOADED:  # else sent before
                if progress.error is None:
                    self._last_use = time.monotonic()  # a model that still arrives is not idle
                self._loading.report(progress, is_ready=self.gate.state is ModelState.READY)
            case Heartbeat() | AnswerReport():
                self._replies.receive(report)

    def _handle_step(self, report: StepReport) -> None:
        if report.stats is not None:
            self._call(self._on_stats, report.stats)
            self.has_wrong_kv |= any(result == "different" for _, result in report.stats.audits)
        for output in report.outputs:
            self._call(self._on_finished, output)
        forecast = report.stats.forecast if report.stats is not None else None
        with self._lock:
            self._forecast = forecast or self._forecast
            self._sent.mark_received(report.received)
            self._sent.mark_scheduled(report.scheduled)
            self._sent.num_steps += report.stats is not None
        self._sent.deliver(report.events)
        self._failover.observe(report)

    def _call(self, listener: Callable[..., None] | None, *values: Any) -> None:
        if listener is None:
            return
        try:
            listener(*values)
        except Exception:
            logger.exception("%s: a listener failed", self.name)

    def _handle_state(self, report: StateReport) -> None:
        level = logging.ERROR if report.state is ModelState.FAILED else logging.INFO
        logger.log(level, "%s: %s", self.name, report.error if level == logging.ERROR else report.state)
        losses = None
        with self._lock:
            was_ready = self.gate.state is ModelState.READY
            self.gate.set_state(report.state, report.error, report.retry_s)
            if report.input_processor is not None:
                self._input_processor = report.input_processor
                self._forecast = report.forecast
            self._last_use = time.monotonic()
            if report.state is ModelState.READY:
                self.adapters.repeat()
                self._failover.resume()
            elif report.state is ModelState.LOADING or report.retry_s is not None:
                losses = self._failover.take_back(self._sent.values(), report.error) if was_ready else None
            else:
                losses = Losses([], [], failed=self._sent.values())
        if report.state is not ModelState.READY:
            self._replies.end()
        if report.state is ModelState.LOADING:
            self._loading.report_start()
        if report.input_processor is not None:
            self._call(self._on_ready, report.input_processor.limits)
            if self._on_ready is not None:  # a server's engine; a replica's encodes nothing
                self._threads.submit(report.input_processor.prepare)
            if self.num_stages == 1:
                self._loading.change(stage=1)
        if report.state is ModelState.FAILED:
            self._loading.change(stage=0, error=report.error, phase="failed")
        if losses is not None:
            self._failover.notify(losses, report.error)

    async def drain(self, timeout_s: float) -> int:
        """Admit no further requests and wait for the open ones. Returns how many had to be ended with an error."""
        self.gate.close()
        deadline = time.monotonic() + timeout_s
        while self._sent and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(_POLL_S, left_s))
        return self._end_all()

    def shutdown(self) -> None:
        """End open requests with an error, and stop the host after its step."""
        self.gate.close()
        self._end_all()
        self._failover.close()
        self._grammars.close()
        self._threads.close()
        if self._input_processor is not None:
            self._input_processor.close()  # else its texts would hold up the exit
        self._host.stop()

    def _end_all(self) -> int:
        message = f"{self.name} was shut down before this request had ended"
        return sum(self._sent.cut_off(request, EngineUnavailable(message)) for request in self._sent.values())
