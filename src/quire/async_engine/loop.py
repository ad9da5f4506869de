"""The loop around an engine: handle commands, run a step, report its results, load a new engine after a failure."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from quire.async_engine import messages
from quire.async_engine.live_view import look
from quire.core.request import RequestStatus
from quire.engine.request_state import RequestState
from quire.loading.progress import load_listener
from quire.outputs import LoadProgress, SchedulerOutput, Stats
from quire.system.fair_lock import FairLock

if TYPE_CHECKING:
    from quire.engine.engine import Engine  # would import numpy

logger = logging.getLogger("quire")

_MAX_FAILURES = 3  # within _FAILURES_WITHIN_S of serving; then the next load waits
_FAILURES_WITHIN_S = 60.0
_FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
_ADDS_A_STEP = 64  # requests added between two steps, so that a burst does not delay running ones
_SAVES_S = 5.0  # to write KV to disk after `Stop`


class Failures:
    """Counts an engine's failures. The time of loading does not count.

    The pause before the next load doubles with each failure that follows closely on two others, up to `MAX_PAUSE_S`.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._ready_since: float | None = None
        self._served_s = 0.0
        self._times: deque[float] = deque(maxlen=_MAX_FAILURES)  #: in seconds of serving

    def pause(self) -> None:
        time.sleep(self.pause_s)

    def record_ready(self) -> None:
        self._ready_since = time.monotonic()

    def record_failure(self, error: str) -> str | None:
        """Record the loss of the engine. Returns a reason if the next load should wait for `pause_s`."""
        if self._ready_since is not None:
            self._served_s += time.monotonic() - self._ready_since
            self._ready_since = None
        self._times.append(self._served_s)
        if len(self._times) < _MAX_FAILURES or self._served_s - self._times[0] > _FAILURES_WITHIN_S:
            self.pause_s = 0.0
            return None
        self.pause_s = min(max(_FIRST_PAUSE_S, 2 * self.pause_s), MAX_PAUSE_S)
        return f"the engine failed {_MAX_FAILURES} times within {_FAILURES_WITHIN_S:.0f} s, at last by {error}"


@dataclass(slots=True)
class _Client:
    """A request of the engine, and the state that its sender knows."""

    key: int
    state: RequestState
    wants_progress: bool
    is_started: bool = False
    preempted_at: float | None = None


class EngineLoop:
    """Owns an engine; only the thread that calls `run` uses it. `report` must neither block nor raise."""

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        report: Callable[[messages.Report], None],
        device: FairLock | None = None,
    ) -> None:
        self.inbox: queue.SimpleQueue[messages.Command] = queue.SimpleQueue()
        self._step_began: float | None = None  #: start of the running step (`time.monotonic`)
        self._last_arrival = 0.0  #: time of the last loading progress
        self._num_loads = 0  #: number of loads so far
        self.engine: Engine | None = None
        self._name = name
        self._make_engine = make_engine
        self._report = report
        self._device = (device or FairLock()).add_user()
        self._pending: dict[str, messages.Add] = {}  #: requests not yet added to the engine, by request id
        self._clients: dict[str, _Client] = {}  #: requests of the engine, by request id
        self._last_stats: Stats | None = None
        self._received: list[int] = []  #: keys of requests added since the last step's report
        self._step_output: SchedulerOutput | None = None  #: of the last step
        self.thread_id = 0

    @property
    def busy_since(self) -> float | None:
        """Time since which the running step has made no progress (`time.monotonic`); None between steps.

        The first step may wait for layers; it makes progress while their bytes arrive.
        """
        began = self._step_began
        return None if began is None else max(began, self._last_arrival)

    def run(self) -> None:
        """Load the engine and serve until `Stop`. Ends if the first load fails; later ones are repeated. Never
        raises."""
        self.thread_id = threading.get_ident()
        failures = Failures()
        failure = self._load()
        if failure is not None:
            self._report(messages.StateReport(messages.ModelState.FAILED, failure))
            return
        while True:
            if failure is None:
                failures.record_ready()
                failure = self._serve()
                self._drop_engine()
            if failure is None:
                return
            error = failures.record_failure(failure)
            if error is not None:
                self._report(messages.StateReport(messages.ModelState.FAILED, error, retry_s=failures.pause_s))
                failures.pause()
            self._report(messages.StateReport(messages.ModelState.LOADING, failure))
            failure = self._load()

    def _load(self) -> str | None:
        """Make the engine. Returns the error, if any."""
        self._num_loads = number = self._num_loads + 1
        listening = load_listener.set(partial(self._report_load, number))
        try:
            self.engine = self._make_engine()
        except ValueError as error:  # its message says how to fix it; the receiver of the report logs it
            return f"the model could not be loaded: {error}"
        except BaseException as error:
            logger.exception("%s: the model could not be loaded", self._name)
            return f"the model could not be loaded: {error}"
        finally:
            load_listener.reset(listening)
        self.engine.runner.watch(lambda why: self.inbox.put(messages.EngineFailed(number, why)))
        self.engine.on_scheduled = partial(self._report_scheduled, self.engine)
        if self.engine.promoter is not None:
            self.engine.promoter.arrivals.on_stage = lambda number: self.inbox.put(messages.StageArrived())
            self.inbox.put(messages.StageArrived())  # a stage may have arrived before
        forecast = self.engine.forecaster.forecast(time.monotonic())
        self._report(messages.StateReport(messages.ModelState.READY, None, self.engine.input_processor, forecast))
        return None

    def _report_load(self, number: int, progress: LoadProgress) -> None:
        """Handle progress of load `number`, in the loader's thread."""
        if number != self._num_loads:
            return  # of a lost engine
        if progress.error is None:
            self._last_arrival = time.monotonic()
        elif progress.stage == 0 and self.engine is not None:
            self.inbox.put(messages.EngineFailed(number, progress.error))
        self._report(messages.LoadReport(progress))

    def _serve(self) -> str | None:
        """Serve until `Stop`. Returns the error, if any."""
        assert self.engine is not None
        try:
            while self._handle_commands(self.engine):
                if self.engine.has_work():  # e.g. transfers of aborted requests
                    self._step(self.engine)
            self._finish_saves(self.engine)
        except BaseException as error:  # the thread must report its end
            # The engine's state may be inconsistent, so nothing of it is used again.
            logger.exception("%s: the engine failed and is loaded again", self._name)
            return f"{type(error).__name__}: {error}"
        finally:
            self._step_began = None
            self._device.leave()
        return None

    def _finish_saves(self, engine: Engine) -> None:
        """Write the KV on its way to disk, unless that takes long or requests still run."""
        until = time.monotonic() + _SAVES_S
        while not self._clients and engine.has_work() and time.monotonic() < until:
            self._step(engine)

    def _drop_engine(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = None
        self._clients.clear()
        self._pending.clear()
        self._received.clear()
        gc.collect()

    def _handle_commands(self, engine: Engine) -> bool:
        """Handle pending commands; wait for one if there is no work. Returns False on `Stop`."""
        ended = messages.StepReport()
        goes_on = True
        if not self._pending and not engine.has_work():
            self._device.leave()
            self._step_began = None
            engine.pause()
            engine.promote_if_ready()  # drops an unused older stage
            command: messages.Command | None = self._wait_for_command(engine)
            self._device.enter()
        else:
            command = self._next_command()
        while command is not None and goes_on:
            match command:
                case messages.Add():
                    self._pending[command.request_id] = command
                case messages.Abort():
                    self._abort(engine, command, ended)
                case messages.DeleteDocuments():
                    self._delete_documents(engine, command)
                case messages.SetAdapter():
                    self._set_adapter(engine, command, ended)
                case messages.Heartbeat():
                    self._report(command)
                case messages.Look(number):
                    self._look(engine, number)
                case messages.StageArrived():
                    engine.promote_if_ready()
                case messages.EngineFailed(number, error) if number == self._num_loads:
                    raise RuntimeError(error)
                case messages.Stop():
                    goes_on = False
            command = self._next_command()
        for request_id in self._next_adds():
            self._add(engine, self._pending.pop(request_id), ended)
        if ended.events or ended.outputs:
            if not self._clients:  # no step will report their end
                ended.stats = engine.snapshot()
            self._report(ended)
        return goes_on

    def _next_adds(self) -> list[str]:
        """Return the ids of the next requests to add; tenants take turns."""
        by_tenant: dict[str, list[str]] = {}
        for request_id, add in self._pending.items():
            by_tenant.setdefault(add.processed.owner.tenant, []).append(request_id)
        in_turn = chain.from_iterable(zip_longest(*by_tenant.values()))
        return list(islice(filter(None, in_turn), _ADDS_A_STEP))

    def _wait_for_command(self, engine: Engine) -> messages.Command | None:
        """Wait for a command. After long idling begin an audit instead, and return None."""
        if (auditor := engine.auditor) is None:
            return self.inbox.get()
        with suppress(queue.Empty):
            return self.inbox.get(timeout=auditor.wait_s())
        auditor.begin()
        return None

    def _next_command(self) -> messages.Command | None:
        try:
            return self.inbox.get_nowait()
        except queue.Empty:
            return None

    def _delete_documents(self, engine: Engine, command: messages.DeleteDocuments) -> None:
        try:
            engine.delete_documents(command.prompts)
        except (OSError, ValueError) as error:
            logger.error("%s: KV of deleted documents could not be deleted: %s", self._name, error)

    def _set_adapter(self, engine: Engine, command: messages.SetAdapter, ended: messages.StepReport) -> None:
        earlier = [each for each, add in self._pending.items() if add.processed.prompt.adapter == command.name]
        for request_id in earlier:
            self._add(engine, self._pending.pop(request_id), ended)
        error = ""
        try:
            if command.directory is None:
                engine.adapters.unload(command.name)
            else:
                engine.adapters.load(command.name, command.directory)
        except (ValueError, OSError, MemoryError) as failure:
            error = str(failure) or "there is no memory for it"
            logger.error("%s: the adapter %s is not loaded: %s", self._name, command.name, error)
        self._report(messages.AnswerReport(command.number, error))

    def _look(self, engine: Engine, number: int) -> None:
        view = None
        try:
            view = look(engine.scheduler)
        except Exception:  # a viewer must not end the engine
            logger.exception("%s: its view could not be made", self._name)
        self._report(messages.AnswerReport(number, view))

    def _add(self, engine: Engine, add: messages.Add, ended: messages.StepReport) -> None:
        if add.request_id in self._clients:
            return
        try:
            state = engine.add(
                add.processed,
                request_id=add.request_id,
                arrival_time=add.arrival_time,
                resumption=add.resumption,
                serial=add.serial,
            )
        except ValueError as error:
            ended.events.append((add.key, error))
            return
        if state.is_finished:  # a resumed request that was complete
            ended.outputs.append(output := state.to_output())
            ended.events.append((add.key, messages.Finished(output)))
            return
        self._clients[add.request_id] = _Client(add.key, state, add.wants_progress)
        self._received.append(add.key)

    def _abort(self, engine: Engine, abort: messages.Abort, ended: messages.StepReport) -> None:
        request_id = abort.request_id
        pending = self._pending.get(request_id)
        if pending is not None and pending.key == abort.key:
            del self._pending[request_id]
            if not abort.is_reported:
                ended.outputs.append(pending.output("abort"))
            return
        client = self._clients.get(request_id)
        if client is None or client.key != abort.key:
            return
        del self._clients[request_id]
        state = engine.abort(request_id)
        if state is not None and not abort.is_reported:
            ended.outputs.append(state.to_output())

    def _step(self, engine: Engine) -> None:
        with self._device:
            self._step_began = time.monotonic()
            changed = engine.step()
        report = messages.StepReport(received=self._received)
        self._received = []
        if engine.last_stats is not self._last_stats:
            report.stats = self._last_stats = engine.last_stats
        self._report_schedule(engine, report)
        for state in changed:
            self._report_progress(engine, state, report)
            if report.outputs and any(len(each.logprobs or ()) for each in report.outputs[-1].outputs):
                self._report(report)  # alone: the receiver's event loop reads large reports at once
                report = messages.StepReport()
        self._report(report)
        self._step_began = None

    def _report_scheduled(self, engine: Engine, out: SchedulerOutput) -> None:
        """Report the requests that enter a step before it executes, since it may never end."""
        self._step_output = out
        if not out.new_sequences:
            return
        ids = dict.fromkeys(engine.scheduler.request_of(new.seq_id).request_id for new in out.new_sequences)
        keys = [client.key for request_id in ids if (client := self._clients.get(request_id)) is not None]
        self._report(messages.StepReport(scheduled=keys))

    def describe_step(self) -> str:
        """Describe the running step, in any thread: which requests' ids it prefills and decodes."""
        engine, out, ids = self.engine, self._step_output, dict[bool, list[str]]()
        if engine is None or out is None:
            return "no request"
        new = {each.seq_id for each in out.new_sequences}
        for seq_id, num_tokens in zip(out.seq_ids, out.num_scheduled_tokens, strict=True):
            with suppress(KeyError):  # the scheduler changes meanwhile
                each = ids.setdefault(seq_id in new or num_tokens > 1, [])
                each.append(engine.scheduler.request_of(seq_id).request_id)
        parts = [
            f"{'prefill' if is_prefill else 'decode'} of {', '.join(dict.fromkeys(found))}"
            for is_prefill, found in sorted(ids.items(), reverse=True)
        ]
        return "; ".join(parts) or "no request"

    def _report_schedule(self, engine: Engine, report: messages.StepReport) -> None:
        """Report requests that started, resumed or were preempted."""
        clients = self._clients
        for request in engine.scheduler.queue.running:
            client = clients.get(request.request_id)
            if client is None:  # the engine's own request, such as a pinned prefix
                continue
            if not client.is_started or client.preempted_at is not None:
                self._report_running(client, report)
        if report.stats is not None and report.stats.preemptions == 0:
            return
        for request in engine.scheduler.queue.waiting:
            client = clients.get(request.request_id)
            if client is None or request.status is not RequestStatus.PREEMPTED:
                continue
            if client.is_started and client.preempted_at is None:
                client.preempted_at = time.monotonic()
                if client.wants_progress:
                    report.events.append((client.key, messages.Preempted()))

    def _report_running(self, client: _Client, report: messages.StepReport) -> None:
        request = client.state.request
        if not client.is_started and client.state.metrics.first_scheduled_time is not None:
            client.is_started = True
            started = messages.Started(request.prompt_token_ids, request.cached_tokens, request.stage, request.seed)
            report.events.append((client.key, started))
        if client.preempted_at is not None:
            times, now = client.state.metrics, time.monotonic()
            times.recoveries.append((client.preempted_at - times.arrival_time, now - client.preempted_at))
            client.preempted_at = None
            if client.wants_progress:
                report.events.append((client.key, messages.Resumed()))

    def _report_progress(self, engine: Engine, state: RequestState, report: messages.StepReport) -> None:
        request = state.request
        client = self._clients.get(request.request_id)
        if client is None:  # the engine's own request, such as a pinned prefix
            return
        self._report_running(client, report)
        try:
            has_text = client.wants_progress and request.error is None and request.beam is None
            if has_text and (deltas := state.pop_deltas()):
                report.events.append((client.key, messages.Progress(deltas)))
            if not state.is_finished:
                return
            output = state.to_output()
        except Exception as error:  # a failed detokenization fails one request only
            logger.exception("request %s: its answer could not be written", request.request_id)
            engine.abort(request.request_id)
            report.events.append((client.key, messages.RequestFailed(f"{type(error).__name__}: {error}")))
        else:
            report.outputs.append(output)
            ending = messages.Finished(output) if output.error is None else messages.RequestFailed(output.error)
            report.events.append((client.key, ending))
        del self._clients[request.request_id]
