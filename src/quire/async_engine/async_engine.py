"""An engine beside asyncio: requests from any event loop, steps in a thread of their own."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from quire.async_engine.device_share import SharedDevice
from quire.async_engine.event_stream import Delivery, EventStream, OutputCollector
from quire.async_engine.ledger import MAX_LOSSES, Ledger
from quire.async_engine.loop import EngineLoop
from quire.async_engine.messages import (
    Abort,
    Add,
    Command,
    EngineLost,
    EngineUnavailable,
    Event,
    Finished,
    Forget,
    Heartbeat,
    LoadReport,
    Lost,
    ModelState,
    Preempted,
    QueueFull,
    Report,
    Started,
    StateReport,
    StepReport,
    Stop,
)
from quire.async_engine.watchdog import Watchdog
from quire.config import SchedulerConfig
from quire.engine.input_processor import InputProcessor
from quire.forecast import Forecast
from quire.outputs import LoadProgress, RequestOutput, Resumption, Stats
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.structured.checker import GrammarChecker, TooManyGrammars

if TYPE_CHECKING:
    from quire.engine.engine import Engine  # torch with it, and a process that serves has no need of that

logger = logging.getLogger("quire")

HANG_TIMEOUT_S = 120.0  # a step of a large model on a small machine may well take many seconds
LOAD_WAIT_S = 120.0  # for a model that is being loaded
STOP_TIMEOUT_S = 30.0  # for the step under way, when the engine is shut down
_BEGIN = LoadProgress(stage=0, num_stages=1, bytes_loaded=0, bytes_total=0, phase="imports")
_POLL_S = 0.02  # while something is waited for that happens once in a process's life


@dataclass(slots=True, eq=False)
class _Sent:
    """A request that has not ended."""

    add: Add
    stream: EventStream
    number: int  #: in the stream
    collector: OutputCollector  #: the way there from other threads
    ledger: Ledger


class AsyncEngine:
    """One engine thread beside asyncio. `start` it, and `shutdown` when done. Every method may be called from any
    thread, and `submit` from any event loop.

    Args:
        name: under which the model is served.
        make_engine: loads the engine, in its thread, and again whenever it has failed.
        device: where other engines share it.
        max_queue: requests that may wait, those for the model itself among them; None is without limit.
        load_wait_s: for so long requests wait for a model that is being loaded.
        hang_timeout_s: a step that takes longer hangs, and all stacks are logged.
        exit_on_hang: the process then ends with status 70, for its supervisor to start it again.
        on_stats: called with each step's figures, in the engine's thread, so it should be quick.
        on_finished: called likewise with each request's output once it has ended, in whatever way.
        on_ready: called likewise with the limits of the engine, whenever it has been loaded.
        on_accepted: called with n and max_tokens of each request that joins the queue, by its sender.
        on_load: called with `load_progress` whenever it changes, in whatever thread.
    """

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        *,
        device: SharedDevice | None = None,
        max_queue: int | None = None,
        load_wait_s: float = LOAD_WAIT_S,
        hang_timeout_s: float = HANG_TIMEOUT_S,
        exit_on_hang: bool = False,
        on_stats: Callable[[Stats], None] | None = None,
        on_finished: Callable[[RequestOutput], None] | None = None,
        on_ready: Callable[[SchedulerConfig], None] | None = None,
        on_accepted: Callable[[int, int | None], None] | None = None,
        on_load: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.name = name
        self.error: str | None = None  #: why it has failed, or is being loaded again
        self.load_progress: LoadProgress | None = None  #: None before `start`
        self._max_queue = max_queue
        self._load_wait_s = load_wait_s
        self._on_stats = on_stats
        self._on_finished = on_finished
        self._on_ready = on_ready
        self._on_accepted = on_accepted
        self._on_load = on_load
        self._lock = threading.Lock()  # over the engine's state and the streams together
        self._engine_state = ModelState.LOADING
        self._is_draining = False
        self._input_processor: InputProcessor | None = None
        self._forecast: Forecast | None = None  #: the engine's latest
        self._untaken: dict[int, int] = {}  #: by key, tokens of the prompts that it has not reported to have
        self._keys = itertools.count()
        self._sent: dict[int, _Sent] = {}  #: requests that have not ended, by key
        self._request_ids: set[str] = set()  #: of the requests that have not ended
        self.num_queued = 0  #: of them, requests that have not started, and those that wait for the model
        self._waiting: set[Future[None]] = set()  #: requests that wait for the model, until it changes
        self._last_use = 0.0  #: `time.monotonic`
        self._collectors: WeakValueDictionary[asyncio.AbstractEventLoop, OutputCollector] = WeakValueDictionary()
        self._end_of_wait = threading.Timer(0, lambda: None)  #: of requests whose engine was lost, for the next one
        self._heartbeats: dict[int, Future[bool]] = {}
        self._grammars = GrammarChecker()
        self._host = self._make_host(make_engine, device, hang_timeout_s, exit_on_hang)

    def _make_host(
        self, make_engine: Callable[[], Engine], device: SharedDevice | None, hang_timeout_s: float, exit_on_hang: bool
    ) -> EngineHost:
        loop = EngineLoop(self.name, make_engine, self._take_report, device)
        return _ThreadHost(self.name, loop, hang_timeout_s, exit_on_hang)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ModelState:
        if self._is_draining and self._engine_state is not ModelState.FAILED:
            return ModelState.DRAINING
        return self._engine_state

    @property
    def num_requests(self) -> int:
        """Requests that run or wait."""
        return len(self._sent) + len(self._waiting)

    @property
    def idle_s(self) -> float:
        """Seconds since it had a request, or more of it arrived; 0 where it has one now, or takes none."""
        with self._lock:
            is_idle = self.state is ModelState.READY and not self._sent
            return time.monotonic() - self._last_use if is_idle else 0.0

    @property
    def is_known(self) -> bool:
        """Whether `engine` and `limits` tell the facts. They stay known while the model is loaded again."""
        return self._input_processor is not None and self._engine_state is not ModelState.FAILED

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
            raise self._unavailable()
        return self._input_processor.limits

    @property
    def engine(self) -> Any:
        """The `Engine`, for reading facts: tokenizer, vocab_size, max_model_len, default_sampling_params. While it is
        loaded again, its `InputProcessor`. `EngineUnavailable` where they are not known."""
        facts = self._host.facts or (self._input_processor if self.is_known else None)
        if facts is None:
            raise self._unavailable()
        return facts

    @property
    def forecast(self) -> Forecast | None:
        """What a request that is sent now would see (`Forecast.predict`). None where the model takes no requests."""
        with self._lock:
            if self.state is not ModelState.READY or self._forecast is None:
                return None
            untaken = self._untaken.values()
            return self._forecast.later(time.monotonic() - self._forecast.time, len(untaken), sum(untaken))

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the thread, which loads the model.

        Args:
            loop: runs until `shutdown` is over, in another thread than `shutdown`. Where the engine has a process of
                its own, the loop reads that process's reports; by default the running one.
        """
        self._note_load(_BEGIN)
        self._host.start(loop)

    async def wait_ready(self) -> None:
        """Wait until the model is loaded, however long that takes, or raise `EngineUnavailable` where it cannot be."""
        while self.state is ModelState.LOADING:
            await asyncio.sleep(_POLL_S)
        if self.state not in (ModelState.READY, ModelState.UNLOADED):
            raise self._unavailable()

    async def wait_open(self) -> InputProcessor:
        """Wait until the model takes requests, and have it loaded where it was unloaded. Who waits counts as queued.

        Raises:
            EngineUnavailable: it does not within `load_wait_s`, or never will.
            QueueFull: too many wait.
        """
        deadline = time.monotonic() + self._load_wait_s
        while (change := self._expect_change()) is not None:
            try:
                await asyncio.wait_for(asyncio.wrap_future(change), deadline - time.monotonic())
            except TimeoutError:
                raise self._unavailable() from None
            finally:
                with self._lock:
                    self.num_queued -= change in self._waiting
                    self._waiting.discard(change)
        with self._lock:
            return self._check_open()

    def _expect_change(self) -> Future[None] | None:
        """What is done once the model may take requests; None where there is nothing to wait for."""
        with self._lock:
            self._last_use = time.monotonic()
            if not self._is_coming:
                return None
            self._check_queue()
            if self._engine_state is ModelState.UNLOADED:
                self._engine_state = ModelState.LOADING
                self._host.wake()
            change: Future[None] = Future()
            self._waiting.add(change)
            self.num_queued += 1
        return change

    @property
    def _is_coming(self) -> bool:
        return self.state in (ModelState.LOADING, ModelState.UNLOADED)

    def _end_waits(self) -> None:
        """Have all look again who wait for the model. Under the lock."""
        self.num_queued -= len(self._waiting)
        for change in self._waiting:
            if change.set_running_or_notify_cancel():
                change.set_result(None)
        self._waiting.clear()

    def unload(self) -> bool:
        """Give the memory of an idle engine back, until the next request. Returns at once; False where it has work,
        or shares its process with others."""
        idle_s = self.idle_s
        with self._lock:
            if self.state is not ModelState.READY or self._sent or not self._host.rest():
                return False
            self._engine_state = ModelState.UNLOADED
            self._forecast = None
        logger.info("%s: %s, after %.0f s without a request", self.name, ModelState.UNLOADED, idle_s)
        self._end_heartbeats()
        known = self.load_progress or _BEGIN
        self._note_load(replace(known, stage=0, bytes_loaded=0, seconds_left=None, phase="unloaded"))
        return True

    async def heartbeat(self, timeout_s: float) -> bool:
        """Whether a message comes back from the engine in time. A step under way may delay it; the loss of the engine
        ends the wait."""
        beat: Future[bool] = Future()
        number = next(self._keys)
        self._heartbeats[number] = beat
        try:
            if self._engine_state is not ModelState.READY:
                return False
            self._host.send(Heartbeat(number))
            return await asyncio.wait_for(asyncio.wrap_future(beat), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._heartbeats.pop(number, None)

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
                `load_wait_s`.
            QueueFull: too many requests wait.
        """
        arrival_time = time.monotonic()
        if isinstance(params, SamplingParams) and params.structured_outputs is not None:
            await self.check_grammar(params.structured_outputs)
        is_sent = False
        while not is_sent:  # or the engine was lost, or unloaded, in between
            accept = partial((await self.wait_open()).accept, priority=priority, min_stage=min_stage)
            processed = await asyncio.to_thread(accept, prompt, params)
            add = Add(next(self._keys), request_id, processed, arrival_time, wants_progress, resumption)
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
        with self._lock:
            for key in stream.keys:
                if (sent := self._sent.get(key)) is not None:
                    self._abort(sent)

    def _check_open(self) -> InputProcessor:
        if self.state is not ModelState.READY or self._input_processor is None:
            raise self._unavailable()
        self._check_queue()
        return self._input_processor

    def _check_queue(self) -> None:
        if self._max_queue is not None and self.num_queued >= self._max_queue:
            raise QueueFull(f"{self.num_queued} requests wait for {self.name} already; try again later")

    def _unavailable(self) -> EngineUnavailable:
        match self.state:
            case ModelState.DRAINING:
                return EngineUnavailable(f"{self.name} is shutting down and takes no further requests")
            case ModelState.FAILED:
                return EngineUnavailable(f"{self.name} cannot be served: {self.error}")
        return EngineUnavailable(f"{self.name} is being loaded; try again soon")

    def _send(self, stream: EventStream, number: int, add: Add) -> bool:
        """Send a request to the engine. False where that is being loaded."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_coming:
                return False
            self._check_open()
            if add.request_id in self._request_ids:
                raise ValueError(f"request id {add.request_id!r} is in use")
            collector = self._collectors.get(loop)
            if collector is None:
                collector = self._collectors[loop] = OutputCollector(loop)
            ledger = Ledger(add.resumption, wants_progress=add.wants_progress)
            self._sent[add.key] = _Sent(add, stream, number, collector, ledger)
            stream.keys.append(add.key)
            self._request_ids.add(add.request_id)
            self.num_queued += 1
            self._untaken[add.key] = add.num_known_tokens
            self._host.send(add)
        return True

    def _abort(self, sent: _Sent, *, is_told: bool = False) -> bool:
        """End a request from here, under the lock. False where it had ended before."""
        if not self._end(sent):
            return False
        self._host.send(Abort(sent.add.key, sent.add.request_id, is_told))
        return True

    def _end(self, sent: _Sent) -> bool:
        """Forget a request, under the lock. False where it had ended before."""
        if self._sent.pop(sent.add.key, None) is None:
            return False
        self._request_ids.discard(sent.add.request_id)
        self._untaken.pop(sent.add.key, None)
        self.num_queued -= not sent.ledger.is_started
        self._last_use = time.monotonic()
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
                self._end_heartbeat(report.number, True)

    def _end_heartbeat(self, number: int, has_come_back: bool) -> None:
        beat = self._heartbeats.pop(number, None)
        if beat is not None and beat.set_running_or_notify_cancel():
            beat.set_result(has_come_back)

    def _end_heartbeats(self) -> None:
        """No engine is left to answer them."""
        for number in list(self._heartbeats):
            self._end_heartbeat(number, False)

    def _take_load(self, progress: LoadProgress) -> None:
        if self._engine_state is ModelState.UNLOADED:
            return  # it was on its way
        if self._engine_state is ModelState.READY and progress.num_stages == 1 and progress.error is None:
            progress = replace(progress, stage=1)  # the rest of a model without stages, which serves meanwhile
        was = self.load_progress
        if progress.error is None:
            self._last_use = time.monotonic()  # what still arrives is not idle
        if progress.num_stages > 1 and progress.stage > (was.stage if was is not None else 0):
            logger.info("%s: %s", self.name, _describe(progress))
        self._note_load(progress)

    def _note_load(self, progress: LoadProgress) -> None:
        self.load_progress = progress
        self._call(self._on_load, progress)

    def _take_step(self, report: StepReport) -> None:
        if report.stats is not None:
            self._call(self._on_stats, report.stats)
        for output in report.outputs:
            self._call(self._on_finished, output)
        forecast = report.stats.forecast if report.stats is not None else None
        if report.taken or forecast is not None:
            self._take_forecast(forecast, report.taken)
        if not report.events:
            return
        batches: dict[OutputCollector, list[Delivery]] = {}
        with self._lock:
            for key, event in report.events:
                sent = self._sent.get(key)
                if sent is None:
                    continue  # its reader has gone
                if isinstance(event, Exception):
                    self._end(sent)
                    shown: Event | Exception | None = event
                else:
                    self.num_queued -= type(event) is Started and not sent.ledger.is_started
                    shown = sent.ledger.take(event)
                    if type(event) is Finished:
                        self._end(sent)
                if shown is not None:
                    batches.setdefault(sent.collector, []).append((sent.stream, sent.number, shown))
        for collector, batch in batches.items():
            if not collector.put(batch):  # the readers' event loop was closed under them
                for stream, _, _ in batch:
                    self.leave(stream)

    def _take_forecast(self, forecast: Forecast | None, taken: list[int]) -> None:
        with self._lock:
            self._forecast = forecast or self._forecast
            for key in taken:
                self._untaken.pop(key, None)

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
        was = self.load_progress
        with self._lock:
            self._engine_state = report.state
            self.error = report.error
            if report.input_processor is not None:
                self._input_processor = report.input_processor
                self._forecast = report.forecast
            self._last_use = time.monotonic()
            if not self._is_coming:
                self._end_waits()
            self._end_of_wait.cancel()
            lost = [] if report.state is ModelState.READY else list(self._sent.values())
            again = set[_Sent]()
            if report.state is ModelState.LOADING:
                again = self._send_again(lost, was)
                self._end_of_wait = self._begin_wait()
        if report.state is not ModelState.READY:
            self._end_heartbeats()
        if report.state is ModelState.LOADING:
            self._note_load(_BEGIN)
        if report.input_processor is not None:
            self._call(self._on_ready, report.input_processor.limits)
            if self.num_stages == 1:
                self._note_load(replace(self.load_progress or _BEGIN, stage=1))
        if report.state is ModelState.FAILED:
            self._note_load(replace(self.load_progress or _BEGIN, stage=0, error=report.error, phase="failed"))
        self._tell_lost(lost, again, report.error)

    # -- requests whose engine was lost ------------------------------------------------------------------------------

    def _take_lost(self, report: Lost) -> None:
        with self._lock:
            lost = [sent for key in report.keys if (sent := self._sent.get(key)) is not None]
            again = self._send_again(lost, self.load_progress)
        self._tell_lost(lost, again, report.error)

    def _send_again(self, lost: Sequence[_Sent], was: LoadProgress | None) -> set[_Sent]:
        """Have the next engine go on with requests, behind what their readers have been given. Not for ever: a request
        itself may be what breaks engines. Under the lock.

        Args:
            was: how far loading of the lost engine had come.

        Returns:
            Those that were sent; the others are to be given up.
        """
        again = {sent for sent in lost if sent.ledger.lose() and self._load_wait_s > 0}
        for sent in lost:
            if sent in again:
                sent.add = replace(sent.add, resumption=sent.ledger.resumption(was.stage if was is not None else 1))
                self._untaken[sent.add.key] = sent.add.num_known_tokens
                self._host.send(sent.add)
        return again

    def _tell_lost(self, lost: Sequence[_Sent], again: set[_Sent], error: str | None) -> None:
        """Tell the readers of lost requests that they wait for another engine, or that none will have them."""
        if lost:
            logger.info(
                "%s: of %d requests that were there, %d go on in another engine", self.name, len(lost), len(again)
            )
        for sent in lost:
            if sent not in again:
                times = f"{sent.ledger.num_losses} times " if sent.ledger.num_losses >= MAX_LOSSES else ""
                self._give_up(sent, f"the engine failed {times}while it had this request: {error}")
            elif sent.ledger.pause():
                sent.collector.put([(sent.stream, sent.number, Preempted())])

    def _begin_wait(self) -> threading.Timer:
        """Requests that were sent again wait as long for the model as new ones do."""
        timer = threading.Timer(min(self._load_wait_s, threading.TIMEOUT_MAX), lambda: self._end_wait(timer))
        timer.daemon = True
        timer.start()
        return timer

    def _end_wait(self, timer: threading.Timer) -> None:
        with self._lock:
            waits = self._end_of_wait is timer and self._engine_state is ModelState.LOADING
            lost = list(self._sent.values()) if waits else []
        for sent in lost:
            why = f"the engine failed while it had this request, and is not there again after {self._load_wait_s:g} s"
            self._give_up(sent, f"{why}: {self.error}")

    def _give_up(self, sent: _Sent, message: str) -> None:
        """No engine goes on with a request whose engine was lost."""
        if self._cut_off(sent, EngineLost(message), is_told=True):
            self._call(self._on_finished, sent.add.output("error", message))

    def _cut_off(self, sent: _Sent, error: Exception, *, is_told: bool = False) -> bool:
        """End a request from here, and tell its reader. False where it had ended before."""
        with self._lock:
            if not self._abort(sent, is_told=is_told):
                return False
        sent.collector.put([(sent.stream, sent.number, error)])
        return True

    # -- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> int:
        """Take no further requests, and let the present ones finish.

        Returns:
            The number of requests that had not finished in time and were cut off.
        """
        self._stop_taking()
        deadline = time.monotonic() + timeout_s
        while self._sent and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(_POLL_S, left_s))
        return self._end_all()

    def shutdown(self) -> None:
        """Cut off what still runs, and end the thread once its step is over."""
        self._stop_taking()
        self._end_all()
        self._end_of_wait.cancel()
        self._grammars.close()
        self._host.stop()

    def _stop_taking(self) -> None:
        with self._lock:
            self._is_draining = True
            self._end_waits()

    def _end_all(self) -> int:
        with self._lock:
            left = list(self._sent.values())
        message = f"{self.name} was shut down before this request had ended"
        return sum(self._cut_off(sent, EngineUnavailable(message)) for sent in left)


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


class _ThreadHost:
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


def _describe(progress: LoadProgress) -> str:
    """A stage that serves from now on, in words."""
    if progress.is_complete:
        what = "the whole model" if progress.stage == progress.num_stages else "no later one is loaded"
        return f"stage {progress.stage} of {progress.num_stages} serves: {what}"
    share = f", {progress.bytes_loaded / progress.bytes_total:.0%} is loaded" if progress.bytes_total else ""
    left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
    return f"stage {progress.stage} of {progress.num_stages} serves{share}{left}"
