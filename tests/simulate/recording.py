"""A real engine's decisions and times, step by step, so that they can be replayed without the machine.

A recording is a file of JSON lines. The first says how the scheduler was set up; each further line is one event, in
order:

    {"add": "request-0", "time": 0.01, "prompt_token_ids": [...], "max_tokens": 16, ...}     a request came
    {"schedule": 1, "time": 0.02, "seq_ids": [0], "num_scheduled_tokens": [12], ...}         a step was scheduled
    {"store": {"added": ["5e..."], ...}, "time": 0.02}                     blocks came to the disk tier and went from it
    {"observe": 0.013, "reports": [...]}                                   the cost model was told of seconds, transfers
    {"update": 1, "time": 0.03, "sampled": [[0, [417]]], "reports": [...]}                   the step's result
    {"fail": 1, "time": 0.03, "error": "..."}                                                ... or its failure
    {"end": "request-0", "index": null, "reason": "abort"}                 a request (or one of its sequences) was ended
    {"pin": "request-0"}                                                                     its blocks stay for good
    {"begin": {...}, "time": 0.05}       the warm-up is over; the cost model was taught this (or null: nothing)

Times are seconds on the engine's clock. A recording holds prompts and outputs, as token ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from quire.config import SchedulerConfig
from quire.core.block_keys import Domain
from quire.core.decisions.costs import StepShape
from quire.core.request import EndRules, KVScope, Order, Request, RequestStatus
from quire.core.request import Sequence as RequestSequence
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import SchedulerOutput, StepOutput, StoreChanges, TokenLogprobs, TransferReport
from quire.sampling_params import BeamSearchParams, SamplingParams

VERSION = 6
KINDS = ("add", "store", "schedule", "observe", "update", "fail", "end", "pin", "begin")  #: number of events

Event = dict[str, Any]


@dataclass
class Recording:
    """One engine's recorded events."""

    config: SchedulerConfig
    policy: str = "recompute"  #: as `make_policy` reads it
    cost_model: dict[str, Any] | None = None  #: the prior (`to_dict`); None if costs are not used
    events: list[Event] = field(default_factory=list)  #: in order; see above

    def head(self) -> Event:
        """Return the first line."""
        setup = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "events"}
        return {"quire_recording": VERSION, **setup, "config": asdict(self.config)}

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read a recording's file.

        Raises:
            ValueError: the file cannot be read, or is no recording; the message says in which line.
        """
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ValueError(f"cannot read {path}: {reason}") from None
        entries = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
        head = entries[0] if entries else {}
        if head.pop("quire_recording", None) != VERSION:
            raise ValueError(f"{path} is no recording; its first line is {{'quire_recording': {VERSION}, ...}}")
        try:
            head |= {"config": SchedulerConfig(**head["config"])}
            return cls(**head, events=entries[1:])
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


def record(engine: Any, sink: TextIO, *, policy: str) -> Recorder:
    """Put a recorder before a fresh engine's scheduler and the observer of its costs.

    Args:
        engine: before its first step.
        sink: gets each line.
        policy: as `make_policy` reads it; one that weighs costs asks the engine's cost model.

    Raises:
        ValueError: the engine has run already: its decisions depend on all that it has been through.
    """
    scheduler = engine.scheduler
    if scheduler.queue.requests or scheduler.num_steps:
        raise ValueError(f"a recording begins with an engine; this one has run {scheduler.num_steps} steps already")
    recorder = engine.scheduler = Recorder(scheduler, sink, engine.clock)
    setup = Recording(scheduler.config, policy, engine.costs.model.to_dict())
    recorder.write(setup.head())
    note = engine.costs.observe

    def recorded_note(shape: StepShape, seconds: float, reports: Sequence[TransferReport]) -> None:
        recorder.write({"observe": seconds, "reports": [asdict(report) for report in reports]})
        note(shape, seconds, reports)

    engine.costs.observe = recorded_note
    return recorder


class Recorder:
    """A proxy of a scheduler that writes each call and result as a line."""

    def __init__(self, scheduler: Scheduler, sink: TextIO, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._sink = sink
        self._clock = clock
        self._step_id = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def write(self, event: Event) -> None:
        self._sink.write(json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n")

    def begin(self, prior: dict[str, Any] | None = None) -> None:
        """The load begins: the requests before it were to warm up, and have ended.

        Args:
            prior: what the cost model was just taught (`CostModel.to_dict`); None leaves it as it is.
        """
        self.write({"begin": prior, "time": self._clock()})

    def add(self, request: Request) -> None:
        asked = describe_request(request)
        self._scheduler.add(request)
        self.write({"add": request.request_id, "time": self._clock(), **asked})

    def apply_store_changes(self, changes: StoreChanges) -> None:
        told = {name: [key.hex() for key in keys] for name, keys in asdict(changes).items() if keys}
        self.write({"store": told, "time": self._clock()})
        self._scheduler.apply_store_changes(changes)

    def schedule(self) -> SchedulerOutput:
        started = self._clock()
        out, preempted = schedule(self._scheduler)
        self._step_id = out.step_id
        self.write({"schedule": out.step_id, "time": started, **describe_step(out, preempted)})
        return out

    def update(self, result: StepOutput) -> list[SequenceUpdate]:
        self.write({"update": result.step_id, "time": self._clock(), **describe_result(result)})
        return self._scheduler.update(result)

    def fail_step(self, error: str) -> list[Request]:
        self.write({"fail": self._step_id, "time": self._clock(), "error": error})
        return self._scheduler.fail_step(error)

    def pin_prefix(self, request_id: str) -> int:
        num_pinned = self._scheduler.pin_prefix(request_id)
        self.write({"pin": request_id})
        return num_pinned

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        if request_id in self._scheduler.queue.requests:
            self.write({"end": request_id, "index": None, "reason": reason.value})
        return self._scheduler.finish_request(request_id, reason, error)

    def finish_sequence(
        self, seq: RequestSequence, reason: RequestStatus, stop_reason: int | str | None = None
    ) -> None:
        if seq.finish_reason is None:
            self.write({"end": seq.request.request_id, "index": seq.index, "reason": reason.value})
        self._scheduler.finish_sequence(seq, reason, stop_reason)


def schedule(scheduler: Scheduler) -> tuple[SchedulerOutput, list[str]]:
    """Schedule a step; return it and the preempted request ids, oldest first."""
    before = [(request, request.num_preemptions) for request in scheduler.queue.running]
    out = scheduler.schedule()
    return out, [request.request_id for request, count in before if request.num_preemptions > count]


# -- events ------------------------------------------------------------------------------------------------------------


def describe_request(request: Request) -> Event:
    """Describe a new request, so that `make_request` makes the same one."""
    params = request.sampling_params
    beam = request.beam
    return {
        "prompt_token_ids": list(request.prompt_token_ids),
        "order": list(request.order[:2]),
        "n": params.n,
        "min_tokens": params.min_tokens,
        "max_tokens": request.max_tokens,
        "prompt_logprobs": params.prompt_logprobs,
        "stop_token_ids": sorted(request.stop_token_ids),
        "eos_token_ids": sorted(request.eos_token_ids),
        "beam": None if beam is None else asdict(beam),
        "documents": list(request.documents),
        "num_to_keep": request.num_to_keep,
        "root": request.root.hex(),
        "domains": [[start, level, name.hex(), salt.hex()] for start, (level, name, salt) in request.domains],
    }


def make_request(event: Event) -> Request:
    """Make the request of an "add" line, as far as scheduling depends on it."""
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
        order=Order(priority, arrival),
        ends=EndRules(event["max_tokens"], tuple(event["stop_token_ids"]), tuple(event["eos_token_ids"])),
        kv=KVScope(
            root=bytes.fromhex(event["root"]),
            domains=tuple(
                (start, Domain(level, bytes.fromhex(name), bytes.fromhex(salt)))
                for start, level, name, salt in event["domains"]
            ),
            documents=tuple(event["documents"]),
            keeps_prompt=event["num_to_keep"] > max(event["documents"], default=0),
        ),
    )


def describe_step(out: SchedulerOutput, preempted: Sequence[str]) -> Event:
    """Describe a step's decisions: tokens, preemptions, block transfers."""
    return {
        "seq_ids": list(out.seq_ids),
        "num_scheduled_tokens": list(out.num_scheduled_tokens),
        "preempted": list(preempted),
        "new": [[new.seq_id, new.num_computed_tokens, len(new.token_ids)] for new in out.new_sequences],
        "removed": list(out.removed_seq_ids),
        "transfers": [[t.op_id, t.kind, t.src, t.dst, t.tier] for t in out.transfers],
        "cancelled": list(out.cancelled),
        "claims": [[key.hex(), patience_s] for key, patience_s in out.claims],
        "dropped_claims": [key.hex() for key in out.dropped_claims],
        "invalidated": [key.hex() for key in out.invalidated],
    }


def describe_result(result: StepOutput) -> Event:
    """Describe a step's result, as far as later steps depend on it."""
    sampled = list(zip(result.seq_ids, result.sampled, strict=True))
    beams = [(seq_id, result.logprobs[seq_id][0]) for seq_id, tokens in sampled if not tokens]
    return {
        "sampled": [[seq_id, list(tokens)] for seq_id, tokens in sampled],
        "beams": [[seq_id, entry.top_ids, entry.top_logprobs] for seq_id, entry in beams],
        "failed": [[seq_id, why] for seq_id, why in result.failed.items()],
        "reports": [asdict(report) for report in result.transfers],
    }


def make_result(event: Event) -> StepOutput:
    """Make the result of an "update" line."""
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
