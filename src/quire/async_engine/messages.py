"""Picklable messages between server process and engine: commands go there, reports come back, each in order."""

from __future__ import annotations

import enum
import pickle
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from quire.async_engine.live_view import LiveView
from quire.engine.input_processor import InputProcessor, ProcessedRequest
from quire.forecast import Forecast
from quire.outputs import CompletionOutput, Delta, LoadProgress, RequestMetrics, RequestOutput, Resumption, Stats
from quire.prompt import Prompt


class ModelState(enum.StrEnum):
    """State of a model. A ready model takes requests; requests wait for a loading or unloaded one."""

    LOADING = "loading"
    READY = "ready"
    UNLOADED = "unloaded"  #: idle, memory freed; the next request loads it again
    FAILED = "failed"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Started:
    """The request was scheduled for the first time. The first event."""

    prompt_token_ids: list[int]
    cached_tokens: dict[str, int]  #: prompt tokens found so far, by tier; later loads are in `Finished`
    stage: int = 1  #: the stage on which it starts
    seed: int = 0  #: the address of its random numbers


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens of one step, or of several if the reader is slow."""

    deltas: list[Delta]  #: one per output that grew or ended, by index


@dataclass(frozen=True, slots=True)
class Preempted:
    """The request lost its blocks and waits; its tokens remain."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The request runs again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The request has ended. The last event."""

    output: RequestOutput


Event = Started | Progress | Preempted | Resumed | Finished


class RequestFailed(RuntimeError):
    """The request failed by a server error (500). The message may be shown."""


class EngineLost(RequestFailed):
    """The engine was lost with the request, and no other one resumes it."""


class PoisonRequest(EngineLost):
    """Two engines were lost with the request, the second with this request alone. It is never resumed."""


class EngineUnavailable(RuntimeError):
    """The model is loading, has failed or is shutting down (503)."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(EngineUnavailable):
    """Too many requests wait (429)."""


@dataclass(frozen=True, slots=True)
class Add:
    """Queue a request. Idempotent for the same key."""

    key: int  #: unique in the serving process, unlike the request id
    request_id: str
    processed: ProcessedRequest
    arrival_time: float  #: `time.monotonic`
    wants_progress: bool = True
    resumption: Resumption | None = None  #: state from a lost engine
    serial: int | None = None  #: see `Engine.add`; counted here, so that a new engine does not start over

    @property
    def num_known_tokens(self) -> int:
        """Number of tokens of the prompt and of a resumed request's outputs."""
        return len(self.processed.prompt.token_ids) + (self.resumption.num_tokens if self.resumption is not None else 0)

    @property
    def first_stage(self) -> int:
        """The first stage on which it may run: a resumed request keeps its stage."""
        return max(self.processed.min_stage, self.resumption.stage if self.resumption is not None else 1)

    def output(self, finish_reason: str, error: str | None = None) -> RequestOutput:
        """Return the output of a request that ends outside an engine."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.processed.prompt.text,
            prompt_token_ids=list(self.processed.prompt.token_ids),
            outputs=[CompletionOutput(0, "", [], finish_reason=finish_reason)],
            metrics=RequestMetrics(self.arrival_time, finished_time=time.monotonic()),
            finished=True,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request. Idempotent."""

    key: int
    request_id: str
    is_reported: bool = False  #: the sender has reported its end


@dataclass(frozen=True, slots=True)
class DeleteDocuments:
    """Delete the KV of documents from disk, for all processes."""

    prompts: tuple[tuple[Prompt, int], ...]  #: see `Engine.delete_documents`


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A command that comes back as a report."""

    number: int


@dataclass(frozen=True, slots=True)
class Look:
    """Ask for a view of the engine."""

    number: int


@dataclass(frozen=True, slots=True)
class SetAdapter:
    """Load a LoRA adapter, in place of one of that name, or unload it (None)."""

    number: int
    name: str
    directory: str | None


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """To the question of that number: a view, or None without one; why an adapter is not changed, or ""."""

    number: int
    value: LiveView | str | None


@dataclass(frozen=True, slots=True)
class StageArrived:
    """A stage of the model has arrived. Sent by the loader in the engine's process."""


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine cannot go on: its layers will not arrive, or a rank has ended. Sent in the engine's process."""

    load: int  #: number of the load in the loop
    error: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop."""


Command = Add | Abort | DeleteDocuments | SetAdapter | Heartbeat | Look | StageArrived | EngineFailed | Stop


@dataclass(slots=True)
class StepReport:
    """Events and outputs of a step, or between two steps."""

    events: list[tuple[int, Event | Exception]] = field(default_factory=list)  #: with the requests' keys
    outputs: list[RequestOutput] = field(default_factory=list)  #: all ended requests, including aborted ones
    stats: Stats | None = None
    received: list[int] = field(default_factory=list)  #: keys of requests received since the last report
    scheduled: list[int] = field(default_factory=list)  #: keys of requests that enter the step that begins now


@dataclass(frozen=True, slots=True)
class StateReport:
    """The state of the engine has changed. LOADING or FAILED after READY: it was lost with all requests."""

    state: ModelState
    error: str | None = None
    input_processor: InputProcessor | None = None  #: if READY
    forecast: Forecast | None = None  #: if READY
    retry_s: float | None = None  #: if FAILED: seconds until the next load; None if there is none


@dataclass(frozen=True, slots=True)
class RequestsLost:
    """One of several replicas was lost with these requests; the others serve on."""

    keys: list[int]
    error: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Loading has progressed: before READY, and for a model in stages also afterwards."""

    progress: LoadProgress


Report = StepReport | StateReport | RequestsLost | LoadReport | Heartbeat | AnswerReport


_LENGTH = struct.Struct("!Q")
_values_of_delta = attrgetter(*(field.name for field in fields(Delta)))
_values_of_stats = attrgetter(*(field.name for field in fields(Stats) if field.name != "forecast"))
_values_of_forecast = attrgetter(*(field.name for field in fields(Forecast)))


def dump(message: Any) -> bytes:
    """Serialize a message. Raises the errors of pickling."""
    if type(message) is StepReport:
        events = [
            (key, list(map(_values_of_delta, event.deltas)) if type(event) is Progress else event)
            for key, event in message.events
        ]
        stats = message.stats and _values_of_stats(message.stats)
        forecast = message.stats and message.stats.forecast and _values_of_forecast(message.stats.forecast)
        message = (events, message.outputs, message.received, message.scheduled, stats, forecast)
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def load(data: bytes) -> Any:
    """Deserialize a message of `dump`."""
    message = pickle.loads(data)
    if type(message) is not tuple:
        return message
    events, outputs, received, scheduled, stats, forecast = message
    if stats is not None:
        stats = Stats(*stats)
        stats.forecast = forecast and Forecast(*forecast)
    return StepReport(
        [
            (key, Progress([Delta(*values) for values in event]) if type(event) is list else event)
            for key, event in events
        ],
        outputs,
        stats,
        received,
        scheduled,
    )


def frame(message: Any) -> bytes:
    """Serialize a message with its length in front."""
    data = dump(message)
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Reads messages from a stream of frames that arrives in arbitrary pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Iterate over the messages that a piece completes. Exhaust it before the next piece."""
        self._rest += piece
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            data = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield load(data)
