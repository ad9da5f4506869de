"""What a real engine decided and how long it took, step by step, so that it can be played again without the machine.

A recording is a file of JSON lines. The first says how the scheduler was set up; each of the others is one thing that
happened, in order:

    {"add": "request-0", "time": 0.01, "prompt_token_ids": [...], "max_tokens": 16, ...}     a request came
    {"schedule": 1, "time": 0.02, "seq_ids": [0], "num_scheduled_tokens": [12], ...}         what a step was to be
    {"observe": 0.013, "reports": [...]}                                   what the cost model was told that it took
    {"update": 1, "time": 0.03, "sampled": [[0, [417]]], "reports": [...]}                   what it brought
    {"fail": 1, "time": 0.03, "error": "..."}                                                ... or that it failed
    {"end": "request-0", "index": null, "reason": "abort"}                 a request (or one of its sequences) was ended
    {"pin": "request-0"}                                                                     its blocks stay for good
    {"begin": {...}, "time": 0.05}         what came before was to warm up; the cost model believes this now (or null)

Times are seconds on the engine's clock. Prompts and answers are in it, as token ids. Knows nothing about engines: a
`Recorder` stands before a scheduler (and the observer of its costs) and hands everything on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from quire.config import SchedulerConfig
from quire.core.block_keys import Domain
from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import StepShape
from quire.core.recovery.observer import CostObserver
from quire.core.request import Request, RequestStatus
from quire.core.request import Sequence as RequestSequence
from quire.core.scheduler import Scheduler, SequenceUpdate
from quire.outputs import SchedulerOutput, StepOutput, TokenLogprobs, TransferReport
from quire.sampling_params import BeamSearchParams, SamplingParams

VERSION = 5

Event = dict[str, Any]


@dataclass
class Recording:
    """One engine's life.

    Attributes:
        config: the scheduler's.
        root: the namespace's key.
        policy: as `make_policy` reads it.
        cost_model: what was believed at the start (`CostModel.to_dict`); None where the policy asks for no costs.
        events: in order; see above.
    """

    config: SchedulerConfig
    root: bytes = b""
    policy: str = "recompute"
    cost_model: dict[str, Any] | None = None
    events: list[Event] = field(default_factory=list)

    def head(self) -> Event:
        """The first line."""
        return {
            "quire_recording": VERSION,
            "config": asdict(self.config),
            "root": self.root.hex(),
            "policy": self.policy,
            "cost_model": self.cost_model,
        }

    def lines(self) -> Iterator[str]:
        for entry in (self.head(), *self.events):
            yield json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n"

    def write(self, path: str | Path) -> None:
        """Raises:
        ValueError: the file cannot be written.
        """
        try:
            with Path(path).open("w") as file:
                file.writelines(self.lines())
        except OSError as error:
            raise ValueError(f"cannot write {path}: {error.strerror}") from None

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Raises:
        ValueError: the file cannot be read, or is no recording; the message says in which line.
        """
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ValueError(f"cannot read {path}: {reason}") from None
        entries = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
        if not entries or entries[0].get("quire_recording") != VERSION:
            raise ValueError(f"{path} is no recording; its first line is {{'quire_recording': {VERSION}, ...}}")
        head = entries[0]
        try:
            config = SchedulerConfig(**head["config"])
            return cls(config, bytes.fromhex(head["root"]), head["policy"], head["cost_model"], entries[1:])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line 1: {error} is missing or wrong") from None


def _parse(line: str, where: str) -> Event:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is {type(entry).__name__}, expected an object")
    return entry


# -- writing one -------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes down what passes between an engine, its scheduler and its cost model.

        recorder = Recorder(file, engine.clock, policy="cost", model=engine.costs.model)
        recorder.attach(engine)

    Args:
        sink: gets each line; a file's `write`, or any other place.
        clock: the engine's.
        policy: as `make_policy` reads it.
        model: the policy's, as it is now; None where it has none.
    """

    def __init__(
        self,
        sink: TextIO,
        clock: Callable[[], float],
        *,
        policy: str,
        model: CostModel | None = None,
    ) -> None:
        self._sink = sink
        self.clock = clock
        self._policy = policy
        self._model = model

    def attach(self, engine: Any) -> None:
        """Stand before an engine's scheduler and the observer of its costs.

        Raises:
            ValueError: it has run already: what it decides depends on all that it has been through.
        """
        engine.scheduler = self.before(engine.scheduler)
        engine.costs = self.before_observer(engine.costs)

    def before(self, scheduler: Scheduler) -> RecordedScheduler:
        """What stands in the scheduler's place from now on.

        Raises:
            ValueError: it has run already.
        """
        if scheduler.requests or scheduler.num_steps:
            raise ValueError(f"a recording begins with an engine; this one has run {scheduler.num_steps} steps already")
        prior = None if self._model is None else self._model.to_dict()
        self.write(Recording(scheduler.config, scheduler.kv.root, self._policy, prior).head())
        return RecordedScheduler(scheduler, self)

    def begin(self, prior: dict[str, Any] | None = None) -> None:
        """The load begins: what came before was to warm up, and has ended.

        Args:
            prior: what the cost model was just made to believe (`CostModel.to_dict`); None leaves it as it is.
        """
        self.write({"begin": prior, "time": self.clock()})

    def before_observer(self, observer: CostObserver) -> RecordedObserver:
        """What stands in the place of the costs' observer from now on."""
        return RecordedObserver(observer, self)

    def write(self, event: Event) -> None:
        self._sink.write(json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n")


class RecordedScheduler:
    """A scheduler, and a recorder that hears what it is asked and what it answers. All else is the scheduler's."""

    def __init__(self, scheduler: Scheduler, recorder: Recorder) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._step_id = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def add(self, request: Request) -> None:
        asked = describe_request(request)
        self._scheduler.add(request)
        self._recorder.write({"add": request.request_id, "time": self._recorder.clock(), **asked})

    def schedule(self) -> SchedulerOutput:
        started = self._recorder.clock()
        with Preempted(self._scheduler) as preempted:
            out = self._scheduler.schedule()
        self._step_id = out.step_id
        self._recorder.write({"schedule": out.step_id, "time": started, **describe_step(out, preempted.request_ids)})
        return out

    def update(self, result: StepOutput) -> list[SequenceUpdate]:
        self._recorder.write({"update": result.step_id, "time": self._recorder.clock(), **describe_result(result)})
        return self._scheduler.update(result)

    def fail_step(self, error: str) -> list[Request]:
        self._recorder.write({"fail": self._step_id, "time": self._recorder.clock(), "error": error})
        return self._scheduler.fail_step(error)

    def pin_prefix(self, request_id: str) -> int:
        num_pinned = self._scheduler.pin_prefix(request_id)
        self._recorder.write({"pin": request_id})
        return num_pinned

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        if request_id in self._scheduler.requests:
            self._recorder.write({"end": request_id, "index": None, "reason": reason.value})
        return self._scheduler.finish_request(request_id, reason, error)

    def finish_sequence(
        self, seq: RequestSequence, reason: RequestStatus, stop_reason: int | str | None = None
    ) -> None:
        if seq.finish_reason is None:
            self._recorder.write({"end": seq.request.request_id, "index": seq.index, "reason": reason.value})
        self._scheduler.finish_sequence(seq, reason, stop_reason)


class RecordedObserver:
    """The costs' observer, and a recorder that hears what it is told."""

    def __init__(self, observer: CostObserver, recorder: Recorder) -> None:
        self._observer = observer
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def note(self, shape: StepShape, seconds: float, reports: Sequence[TransferReport]) -> None:
        self._recorder.write({"observe": seconds, "reports": [asdict(report) for report in reports]})
        self._observer.note(shape, seconds, reports)


class Preempted:
    """Finds out who was preempted while it was on, oldest first."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._before: list[tuple[Request, int]] = []
        self.request_ids: list[str] = []

    def __enter__(self) -> Preempted:
        self._before = [(request, request.num_preemptions) for request in self._scheduler.running]
        return self

    def __exit__(self, *failure: object) -> None:
        self.request_ids = [request.request_id for request, count in self._before if request.num_preemptions > count]


# -- what is written ---------------------------------------------------------------------------------------------------


def describe_request(request: Request) -> Event:
    """A request before the scheduler has it, so that `make_request` makes the same one."""
    params = request.sampling_params
    beam = request.beam
    return {
        "prompt_token_ids": list(request.prompt_token_ids),
        "order": list(request.order),
        "n": params.n,
        "min_tokens": params.min_tokens,
        "max_tokens": request.max_tokens,
        "prompt_logprobs": params.prompt_logprobs,
        "stop_token_ids": sorted(request.stop_token_ids),
        "eos_token_ids": sorted(request.eos_token_ids),
        "beam": None if beam is None else asdict(beam),
        "domains": [[start, level, name.hex()] for start, (level, name) in request.domains],
    }


def make_request(event: Event) -> Request:
    """The request of an "add" line, as far as scheduling depends on it."""
    beam = event["beam"]
    priority, arrival = event["order"]
    params = SamplingParams(
        n=event["n"], min_tokens=event["min_tokens"], max_tokens=None, prompt_logprobs=event["prompt_logprobs"]
    )
    return Request(
        event["add"],
        event["prompt_token_ids"],
        params,
        beam=None if beam is None else BeamSearchParams(**beam),
        arrival=arrival,
        priority=priority,
        max_tokens=event["max_tokens"],
        stop_token_ids=tuple(event["stop_token_ids"]),
        eos_token_ids=tuple(event["eos_token_ids"]),
        domains=tuple((start, Domain(level, bytes.fromhex(name))) for start, level, name in event["domains"]),
    )


def describe_step(out: SchedulerOutput, preempted: Sequence[str]) -> Event:
    """What was decided: who computes how much, who gave way, which blocks move."""
    return {
        "seq_ids": list(out.seq_ids),
        "num_scheduled_tokens": list(out.num_scheduled_tokens),
        "preempted": list(preempted),
        "new": [[new.seq_id, new.num_computed_tokens, len(new.token_ids)] for new in out.new_sequences],
        "removed": list(out.removed_seq_ids),
        "transfers": [[t.op_id, t.kind, t.src, t.dst] for t in out.transfers],
        "cancelled": list(out.cancelled),
    }


def describe_result(result: StepOutput) -> Event:
    """What a step brought, as far as the next ones depend on it."""
    beams = {
        seq_id: [entries[0].top_ids, entries[0].top_logprobs]
        for seq_id, sampled, entries in _with_logprobs(result)
        if not sampled
    }
    return {
        "sampled": [[seq_id, list(tokens)] for seq_id, tokens in zip(result.seq_ids, result.sampled, strict=True)],
        "beams": [[seq_id, *found] for seq_id, found in beams.items()],
        "failed": [[seq_id, why] for seq_id, why in result.failed.items()],
        "reports": [asdict(report) for report in result.transfers],
    }


def _with_logprobs(result: StepOutput) -> Iterator[tuple[int, list[int], list[TokenLogprobs]]]:
    for seq_id, tokens in zip(result.seq_ids, result.sampled, strict=True):
        if entries := result.logprobs.get(seq_id):
            yield seq_id, tokens, entries


def make_result(event: Event) -> StepOutput:
    """The result of an "update" line."""
    return StepOutput(
        event["update"],
        seq_ids=[seq_id for seq_id, _ in event["sampled"]],
        sampled=[list(tokens) for _, tokens in event["sampled"]],
        logprobs={
            seq_id: [TokenLogprobs(ids, logprobs, ids[0], logprobs[0], 1)] for seq_id, ids, logprobs in event["beams"]
        },
        failed=dict(event["failed"]),
        transfers=[TransferReport(**report) for report in event["reports"]],
    )
