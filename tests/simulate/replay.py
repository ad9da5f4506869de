"""Replays a recording: the real scheduler is asked the same questions and must decide the same.

The clock is the recording's, so the figures are what the engine's requests went through. `predict` puts beside them
what the simulator makes of the same arrivals with costs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver
from quire.core.request import Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.outputs import StoreChanges, TransferReport
from quire.simulate.hardware import HardwareProfile
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, SimulationFigures, latencies, simulate
from quire.simulate.token_times import Distribution, Timeline
from simulate.recording import KINDS, Event, Recording, describe_step, make_request, make_result, schedule


class ReplayDiffers(Exception):
    """The scheduler decided differently than for the engine."""

    def __init__(self, step_id: int, what: str, recorded: Any, replayed: Any) -> None:
        super().__init__(f"step {step_id} differs in {what}: recorded {recorded}, replayed {replayed}")
        self.step_id = step_id  #: of the first difference
        self.what = what  #: the differing field


@dataclass(frozen=True)
class ReplayFigures:
    """The latencies and counts of the engine's requests, without those that warmed it up.

    Latencies are of requests with one output that came to their end.
    """

    num_steps: int
    num_requests: int
    num_preemptions: int
    num_scheduled_tokens: int
    num_recomputed_tokens: int
    num_output_tokens: int
    makespan_s: float  #: from the first arrival to the last token
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    arrivals: list[Arrival]  #: of requests with one output, from the first arrival to the end


def replay(recording: Recording) -> ReplayFigures:
    """Play a recording to its end.

    Raises:
        ReplayDiffers: at the first step that is not the recorded one.
        ValueError: a line does not belong to a recording.
    """
    return _Replay(recording).run()


class _Replay:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        model = None if recording.cost_model is None else CostModel.from_dict(recording.cost_model)
        policy = make_compared_policy(recording.policy)
        self.scheduler = Scheduler(recording.config, policy, model)
        self.observer = None if model is None else CostObserver(model, self.scheduler.recovery.log)
        self._start()

    def _start(self) -> None:
        """Start counting here."""
        self.timeline = Timeline()
        self.requests: list[tuple[float, Request]] = []
        self.num_steps = self.num_scheduled_tokens = 0
        self.last_token_time = 0.0
        self.counts_before = replace(self.scheduler.counts)

    def run(self) -> ReplayFigures:
        for number, event in enumerate(self.recording.events, start=2):
            kind = next(iter(event), "")
            if kind not in KINDS:
                raise ValueError(f"line {number} of the recording is none of {', '.join(KINDS)}")
            try:
                getattr(self, f"_{kind}")(event)
            except (KeyError, TypeError) as error:
                raise ValueError(f"line {number} of the recording, {kind}: {error} is missing or not known") from error
        return self._figures()

    def _add(self, event: Event) -> None:
        request = make_request(event)
        self.scheduler.add(request)
        self.requests.append((event["time"], request))

    def _schedule(self, event: Event) -> None:
        out, preempted = schedule(self.scheduler)
        if out.step_id != event["schedule"]:
            raise ReplayDiffers(event["schedule"], "its number", event["schedule"], out.step_id)
        for name, replayed in describe_step(out, preempted).items():
            if event[name] != replayed:
                raise ReplayDiffers(out.step_id, name, event[name], replayed)
        self.num_steps += 1
        self.num_scheduled_tokens += out.total_tokens

    def _store(self, event: Event) -> None:
        told = {name: [bytes.fromhex(key) for key in keys] for name, keys in event["store"].items()}
        self.scheduler.apply_store_changes(StoreChanges(**told))

    def _observe(self, event: Event) -> None:
        if self.observer is not None:
            reports = [TransferReport(**report) for report in event["reports"]]
            self.observer.observe(self.scheduler.step_shape, event["observe"], reports)

    def _update(self, event: Event) -> None:
        result = make_result(event)
        self.scheduler.update(result)
        self.timeline.record(result.seq_ids, event["time"])
        if result.seq_ids:
            self.last_token_time = event["time"]

    def _fail(self, event: Event) -> None:
        self.scheduler.fail_step(event["error"])

    def _end(self, event: Event) -> None:
        reason = RequestStatus(event["reason"])
        if event["index"] is None:
            self.scheduler.finish_request(event["end"], reason)
            return
        request = self.scheduler.queue.requests[event["end"]]
        self.scheduler.finish_sequence(next(seq for seq in request.unfinished if seq.index == event["index"]), reason)

    def _pin(self, event: Event) -> None:
        self.scheduler.pin_prefix(event["pin"])

    def _begin(self, event: Event) -> None:
        if event["begin"] is not None and self.observer is not None:
            self.observer.model.take_over(event["begin"])
        self._start()

    def _figures(self) -> ReplayFigures:
        self.timeline.record([], self.last_token_time)
        start = min((time for time, _ in self.requests), default=0.0)
        told: list[tuple[int, Arrival]] = []
        for time, request in self.requests:
            is_whole = request.status in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH)
            if request.width == 1 and is_whole:
                seq = request.sequences[0]
                prompt = request.prompt_token_ids
                arrival = Arrival(time, len(prompt), seq.num_output_tokens, prompt, documents=request.documents)
                told.append((seq.seq_id, arrival))
        ttft_s, tpot_s = latencies(self.timeline, told)
        counts, before = self.scheduler.counts, self.counts_before
        return ReplayFigures(
            num_steps=self.num_steps,
            num_requests=len(self.requests),
            num_preemptions=counts.preemptions - before.preemptions,
            num_scheduled_tokens=self.num_scheduled_tokens,
            num_recomputed_tokens=counts.recomputed_tokens - before.recomputed_tokens,
            num_output_tokens=sum(arrival.num_output_tokens for _, arrival in told),
            makespan_s=self.last_token_time - start,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            itl_s=self.timeline.gaps(),
            arrivals=[arrival._replace(time_s=arrival.time_s - start) for _, arrival in told],
        )


# -- the simulator beside it -------------------------------------------------------------------------------------------


def predict(recording: Recording, arrivals: Sequence[Arrival], hardware: HardwareProfile) -> SimulationFigures:
    """Simulate a recorded load with a profile's own costs.

    Args:
        recording: its policy and limits.
        arrivals: as they were replayed; requests with several outputs are left out.
        hardware: where the seconds come from. Without costs of a disk it has no disk tier; else that is empty at first.
    """
    config = recording.config
    if not hardware.has_disk:
        config = replace(config, has_disk_tier=False)
    if not config.block_bytes:
        config = replace(config, block_bytes=hardware.bytes_per_token * config.block_size)
    return simulate(arrivals, hardware, config, make_compared_policy(recording.policy))
