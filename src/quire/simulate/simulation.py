"""The real scheduler, pool and recovery against a machine that is a table of costs.

Requests arrive, steps are decided by `quire.core` and executed by a `VirtualRunner`, whose clock tells what each took.
The same arrivals, profile, limits and policy give the same figures. Knows no files, no text and no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quire.config import SchedulerConfig
from quire.core.costs.cost_model import CostModel
from quire.core.recovery.interface import RecoveryPolicy
from quire.core.recovery.log import Recovery
from quire.core.recovery.observer import CostObserver
from quire.core.request import Request
from quire.core.scheduler import Scheduler
from quire.sampling_params import SamplingParams
from quire.simulate.figures import Distribution, Timeline, distribution
from quire.simulate.hardware import HardwareProfile
from quire.simulate.virtual_runner import VirtualRunner


class Arrival(NamedTuple):
    """A request, as far as its cost depends on it."""

    time_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt_token_ids: Sequence[int] | None = None  #: where prompts may share prefixes; else no two share anything


@dataclass(frozen=True)
class SimulationFigures:
    """What a simulated run amounts to. Seconds are the virtual clock's."""

    num_requests: int  #: that ran
    num_refused: int  #: too long for the limits ever to run
    num_cut: int  #: of those that ran, answers that the limits made shorter than asked for
    num_prompt_tokens: int
    num_output_tokens: int
    num_steps: int
    makespan_s: float  #: from the start to the last token
    compute_s: float  #: of it, the engine computed
    stall_s: float  #: the engine stood still while blocks were copied
    wait_s: float  #: requests were there, and none of them could go on before a block had arrived
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    num_preemptions: int
    preemptions_by_mode: dict[str, int]  #: "fell back" are those of which not all that was to be swapped was
    num_scheduled_tokens: int
    num_recomputed_tokens: int  #: computed in vain the first time
    save_s: float  #: seconds of the link, for recovery
    load_s: float
    recompute_s: float  #: seconds by which computing tokens again made steps longer

    @property
    def recovery_s(self) -> float:
        """Seconds spent on recovery: all that the link did, and what computing again added to steps."""
        return self.save_s + self.load_s + self.recompute_s


def simulate(
    arrivals: Iterable[Arrival],
    hardware: HardwareProfile,
    config: SchedulerConfig,
    policy: RecoveryPolicy,
    *,
    learner: CostModel | None = None,
) -> SimulationFigures:
    """Play a load to its end.

    Args:
        arrivals: in whatever order; each answer ends exactly when it has its tokens.
        hardware: what steps and transfers cost.
        config: the pool and the limits, with `block_bytes`.
        policy: fresh, since policies remember.
        learner: what the policy believes, where that is not the profile itself: it is told of every step and transfer.

    Raises:
        ValueError: no request of the load fits the limits, a prompt has not the tokens that it is said to have, or
            `block_bytes` is missing.
        RuntimeError: the scheduler goes on no more although requests are there.
    """
    return _Simulation(arrivals, hardware, config, policy, learner).run()


class _Simulation:
    def __init__(
        self,
        arrivals: Iterable[Arrival],
        hardware: HardwareProfile,
        config: SchedulerConfig,
        policy: RecoveryPolicy,
        learner: CostModel | None,
    ) -> None:
        if config.num_swap_slots and not config.block_bytes:
            raise ValueError("block_bytes=0: how large a block is decides what swapping it costs; set it")
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.time_s)
        for arrival in self.arrivals:
            if arrival.prompt_token_ids is not None and len(arrival.prompt_token_ids) != arrival.num_prompt_tokens:
                raise ValueError(
                    f"a prompt has {len(arrival.prompt_token_ids)} tokens, and num_prompt_tokens says "
                    f"{arrival.num_prompt_tokens}"
                )
        self.scheduler = Scheduler(config, root=b"simulation", recovery=policy)
        self.runner = VirtualRunner(hardware, config.block_bytes)
        self.observer = CostObserver(learner or hardware.oracle(), self.scheduler.recovery.log)
        self.is_learning = learner is not None
        self.recoveries: list[Recovery] = []
        self.timeline = Timeline()
        self.started: list[tuple[int, Arrival]] = []  #: seq_id, and what it was asked for as the limits let it be
        self.num_refused = self.num_cut = 0
        self.num_steps = self.num_scheduled_tokens = 0
        self.compute_s = self.stall_s = self.wait_s = 0.0
        self.makespan_s = 0.0

    def run(self) -> SimulationFigures:
        scheduler, runner = self.scheduler, self.runner
        num_taken = 0
        while True:
            while num_taken < len(self.arrivals) and self.arrivals[num_taken].time_s <= runner.now:
                self._add(num_taken)
                num_taken += 1
            if scheduler.has_unfinished():
                self._step()
            elif num_taken < len(self.arrivals):
                runner.wait_until(self.arrivals[num_taken].time_s)
            else:
                break
        self.timeline.note([], runner.now)
        return self._figures()

    def _add(self, number: int) -> None:
        arrival = self.arrivals[number]
        prompt = arrival.prompt_token_ids
        if prompt is None:  # numbers that no other prompt has: blocks are found by the tokens in them and before them
            prompt = [number + 1] * arrival.num_prompt_tokens
        request = Request(
            f"request-{number}", prompt, _PARAMS, arrival=number, max_tokens=arrival.num_output_tokens, seed=number
        )
        try:
            self.scheduler.add(request)
        except ValueError:
            self.num_refused += 1
            return
        self.num_cut += request.max_tokens < arrival.num_output_tokens
        took = arrival._replace(num_output_tokens=request.max_tokens, prompt_token_ids=None)
        self.started.append((request.sequences[0].seq_id, took))

    def _step(self) -> None:
        scheduler, runner = self.scheduler, self.runner
        out = scheduler.schedule()
        result = runner.execute(out)
        if not out.seq_ids and not result.transfers and scheduler.requests:
            raise RuntimeError(f"step {out.step_id}: {len(scheduler.requests)} requests are there, and none goes on")
        took = runner.last
        if self.is_learning or scheduler.recovery.log.recomputed:
            self.observer.note(took.shape, took.compute_s, result.transfers)
        scheduler.update(result)
        over = scheduler.recovery.log.over
        while over:  # the log keeps the latest only
            self.recoveries.append(over.popleft())
        self.timeline.note(result.seq_ids, runner.now)
        if result.seq_ids:
            self.makespan_s = runner.now
        self.num_steps += 1
        self.num_scheduled_tokens += out.total_tokens
        self.compute_s += took.compute_s
        self.stall_s += took.stall_s
        self.wait_s += took.wait_s

    def _figures(self) -> SimulationFigures:
        if not self.started:
            raise ValueError(
                f"none of {self.num_refused} requests fits max_model_len={self.scheduler.config.max_model_len}"
            )
        ttft_s, tpot_s = latencies(self.timeline, self.started)
        recoveries = self.recoveries
        return SimulationFigures(
            num_requests=len(self.started),
            num_refused=self.num_refused,
            num_cut=self.num_cut,
            num_prompt_tokens=sum(arrival.num_prompt_tokens for _, arrival in self.started),
            num_output_tokens=sum(arrival.num_output_tokens for _, arrival in self.started),
            num_steps=self.num_steps,
            makespan_s=self.makespan_s,
            compute_s=self.compute_s,
            stall_s=self.stall_s,
            wait_s=self.wait_s,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            itl_s=self.timeline.gaps(),
            num_preemptions=self.scheduler.counts.preemptions,
            preemptions_by_mode=dict(sorted(Counter(recovery.outcome for recovery in recoveries).items())),
            num_scheduled_tokens=self.num_scheduled_tokens,
            num_recomputed_tokens=self.scheduler.counts.recomputed_tokens,
            save_s=sum(recovery.save_s for recovery in recoveries),
            load_s=sum(recovery.load_s for recovery in recoveries),
            recompute_s=sum(recovery.compute_s for recovery in recoveries),
        )


_PARAMS = SamplingParams(max_tokens=None, ignore_eos=True)


def latencies(
    timeline: Timeline, requests: Iterable[tuple[int, Arrival]]
) -> tuple[Distribution | None, Distribution | None]:
    """TTFT and TPOT of requests that are over, by seq_id. One token alone has no TPOT."""
    ttft_s, tpot_s = [], []
    for seq_id, arrival in requests:
        first = timeline.first[seq_id]
        ttft_s.append(first - arrival.time_s)
        if arrival.num_output_tokens > 1:
            tpot_s.append((timeline.last(seq_id) - first) / (arrival.num_output_tokens - 1))
    return distribution(ttft_s), distribution(tpot_s)
