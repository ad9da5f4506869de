"""What passes between those who serve requests and the engine that runs them: plain data that survives pickling.

Commands go in and reports come out, each in order, over a queue or a pipe.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field

from quire.engine.input_processor import InputProcessor, ProcessedRequest
from quire.forecast import Forecast
from quire.outputs import (
    CompletionOutput,
    Delta,
    LoadProgress,
    RequestMetrics,
    RequestOutput,
    Resumption,
    Stats,
)
from quire.prompt import Prompt

# -- what a client of a request sees ---------------------------------------------------------------------------------


class ModelState(enum.StrEnum):
    """Whether a model takes requests: only a ready one does, and for one that loads or is unloaded they wait."""

    LOADING = "loading"
    READY = "ready"
    UNLOADED = "unloaded"  #: idle, so its memory was given back; the next request has it loaded again
    FAILED = "failed"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Started:
    """The request has been scheduled for the first time. Comes first."""

    prompt_token_ids: list[int]
    cached_tokens: dict[str, int]  #: of the prompt, found so far, by tier; what is loaded meanwhile comes with the end
    stage: int = 1  #: that it begins on
    seed: int = 0  #: the address of its random numbers


@dataclass(frozen=True, slots=True)
class Progress:
    """New tokens, of one step, or of several where the reader was slower than the engine."""

    deltas: list[Delta]  #: one an output that grew or ended, by index


@dataclass(frozen=True, slots=True)
class Preempted:
    """The request gave its blocks away and waits; its tokens stand."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The request runs again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The request is done. Comes last."""

    output: RequestOutput


Event = Started | Progress | Preempted | Resumed | Finished


class RequestFailed(RuntimeError):
    """The request ended with an error that is not the client's (500); the message may be shown."""


class EngineLost(RequestFailed):
    """The engine was lost while it had the request, and no other one goes on with it; the message says why."""


class EngineUnavailable(RuntimeError):
    """The model still loads, has failed or is shutting down (503); the message says which."""


class QueueFull(EngineUnavailable):
    """As many requests wait as may (429)."""


# -- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Add:
    """Queue a request. Sent again with the same key, it is still one request."""

    key: int  #: no two requests of one serving process have the same, though their ids may be used again
    request_id: str
    processed: ProcessedRequest
    arrival_time: float  #: `time.monotonic`
    wants_progress: bool = True
    resumption: Resumption | None = None  #: the request was in an engine that was lost, and had come so far
    serial: int | None = None  #: see `Engine.add`: counted by who serves, so that no further engine begins anew

    @property
    def num_known_tokens(self) -> int:
        """Tokens that the engine gets with it: the prompt's, and those that it has made before."""
        return len(self.processed.prompt.token_ids) + (self.resumption.num_tokens if self.resumption is not None else 0)

    @property
    def first_stage(self) -> int:
        """Of the model, before which it does not begin: it does not get worse in the middle."""
        return max(self.processed.min_stage, self.resumption.stage if self.resumption is not None else 1)

    def output(self, finish_reason: str, error: str | None = None) -> RequestOutput:
        """The output of a request that no engine has."""
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
    """End a request wherever it is; harmless where it has ended."""

    key: int
    request_id: str
    is_told: bool = False  #: its end has been reported by who sends this


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the KV of documents from disk, in every process."""

    prompts: tuple[tuple[Prompt, int], ...]  #: see `Engine.forget`


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Goes in as a command and comes back as a report."""

    number: int


@dataclass(frozen=True, slots=True)
class StageArrived:
    """A stage of the model is there; said by who loads it, in the engine's own process."""


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """Layers that an engine which computes already waits for will not come, or what executes its steps has ended;
    likewise."""

    load: int  #: which of the loop's loads it was
    error: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Run no further step."""


Command = Add | Abort | Forget | Heartbeat | StageArrived | EngineFailed | Stop

# -- reports ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepReport:
    """Events and outputs of requests, of a step or between two."""

    events: list[tuple[int, Event | Exception]] = field(default_factory=list)  #: by the requests' keys
    outputs: list[RequestOutput] = field(default_factory=list)  #: of all that ended, aborted ones too
    stats: Stats | None = None
    taken: list[int] = field(default_factory=list)  #: keys of requests that the engine has got since the last report


@dataclass(frozen=True, slots=True)
class StateReport:
    """The engine is in another state. LOADING after READY: it was lost, with every request that it had."""

    state: ModelState
    error: str | None = None
    input_processor: InputProcessor | None = None  #: once READY
    forecast: Forecast | None = None  #: likewise


@dataclass(frozen=True, slots=True)
class Lost:
    """The engine has lost these requests, and serves on: it is several in one, of which one has gone."""

    keys: list[int]
    error: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Loading has come further. Comes before READY and, of a model in stages, after it."""

    progress: LoadProgress


Report = StepReport | StateReport | Lost | LoadReport | Heartbeat
