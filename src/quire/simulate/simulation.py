"""The real scheduler, pool and recovery against a machine that is a table of costs.

Requests arrive, `quire.core` decides the steps, and a `VirtualRunner` executes them on its clock. The same arrivals,
profile, limits and policy give the same figures.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from quire.config import SchedulerConfig
from quire.core.block_keys import PUBLIC_ONLY, extend_keys
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver, record_recomputed
from quire.core.decisions.costs import StepShape
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.core.request import EndRules, KVScope, Request
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import SchedulerOutput
from quire.sampling_params import SamplingParams
from quire.simulate.hardware import HardwareProfile
from quire.simulate.steady_steps import SteadySteps
from quire.simulate.token_times import Distribution, Timeline, distribution
from quire.simulate.virtual_batch import TOKEN
from quire.simulate.virtual_runner import VirtualRunner

_MOST_AT_ONCE = 256  #: steps


class Arrival(NamedTuple):
    """A request's features on which its cost depends."""

    time_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt_token_ids: Seq[int] | None = None  #: where prompts may share prefixes; else no two share anything
    priority: int = 0  #: smaller goes first
    documents: tuple[int, ...] = ()  #: with which its prompt begins: the tokens after each one's last, as of `Request`


@dataclass
class SimulationFigures:
    """The figures of a simulated run. Seconds are the virtual clock's."""

    num_requests: int = 0  #: that ran
    num_refused: int = 0  #: too long for the limits ever to run
    num_cut: int = 0  #: requests that ran, with shorter outputs than asked for: the limits allow no more
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_steps: int = 0
    makespan_s: float = 0.0  #: from the start to the last token
    compute_s: float = 0.0  #: the engine computed
    stall_s: float = 0.0  #: the engine stood still while blocks were copied
    wait_s: float = 0.0  #: no request could go on before a block had arrived
    hits_by_tier: dict[str, int] = field(default_factory=dict)  #: tokens of prefixes that were found, by where
    prefix_ways: dict[str, int] = field(default_factory=dict)  #: prefixes in another tier: load, compute, both, ahead
    ttft_s: Distribution | None = None
    tpot_s: Distribution | None = None
    itl_s: Distribution | None = None
    num_preemptions: int = 0
    preemptions_by_mode: dict[str, int] = field(default_factory=dict)  #: "fell back": not all blocks could be swapped
    num_scheduled_tokens: int = 0
    num_recomputed_tokens: int = 0  #: computed in vain the first time
    save_s: float = 0.0  #: seconds of the link, for recovery
    load_s: float = 0.0
    recompute_s: float = 0.0  #: seconds by which recomputing made steps longer

    @property
    def recovery_s(self) -> float:
        """Seconds spent on recovery: the link's, and those by which recomputing made steps longer."""
        return self.save_s + self.load_s + self.recompute_s

    @property
    def recomputed_share(self) -> float:
        """Of all tokens that were scheduled."""
        return self.num_recomputed_tokens / self.num_scheduled_tokens


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
        config: the pool and the limits, with `block_bytes`. A disk tier is empty at first and keeps all documents.
        policy: fresh, since policies remember.
        learner: the policy's costs, where they are not the profile itself: it is told of every step and transfer.

    Raises:
        ValueError: no request of the load fits the limits, a prompt has not the tokens or the documents that it is said
            to have, `block_bytes` is missing, or there is a disk tier and the profile knows no costs of one.
        RuntimeError: the scheduler schedules nothing although there are requests.
    """
    if (config.num_swap_slots or config.has_disk_tier) and not config.block_bytes:
        raise ValueError("block_bytes=0: how large a block is decides what swapping it costs; set it")
    if config.has_disk_tier and not hardware.has_disk:
        raise ValueError(f"{hardware.name} says nothing of a disk; give it one (with_disk), or leave out the disk tier")
    ordered = check_arrivals(arrivals)
    scheduler = Scheduler(config, policy, learner or hardware.costs)
    return Simulation(scheduler, VirtualRunner(hardware, config.block_bytes), learner).run(ordered)


def check_arrivals(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Arrivals in the order in which they come.

    Raises:
        ValueError: a prompt has not the tokens or the documents that it is said to have.
    """
    ordered = sorted(arrivals, key=lambda arrival: arrival.time_s)
    for arrival in ordered:
        _check_prompt(arrival)
    return ordered


def _check_prompt(arrival: Arrival) -> None:
    num_tokens, prompt, ends = arrival.num_prompt_tokens, arrival.prompt_token_ids, arrival.documents
    if prompt is not None and len(prompt) != num_tokens:
        raise ValueError(f"a prompt has {len(prompt)} tokens, and num_prompt_tokens says {num_tokens}")
    if ends and (prompt is None or not 0 < ends[0] <= ends[-1] <= num_tokens):
        given = "no prompt_token_ids" if prompt is None else f"a prompt of {num_tokens} tokens"
        raise ValueError(f"documents={ends} are at the front of a prompt, and there is {given}")


class Simulation:
    """One engine on its virtual clock, step by step.

    Args:
        scheduler: fresh.
        runner: with the clock.
        learner: is told of every step and transfer.
    """

    def __init__(self, scheduler: Scheduler, runner: VirtualRunner, learner: CostModel | None = None) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.observer = None if learner is None else CostObserver(learner, scheduler.recovery.log)
        self.recoveries: list[RecoveryRecord] = []
        self.timeline = Timeline()
        self.started: list[tuple[int, Arrival]] = []  #: seq_id, and its arrival as the limits cut it
        self.figures = SimulationFigures()
        self.updates: list[SequenceUpdate] = []  #: of the last step: those that ended, and maybe others
        self._num_added = 0
        self._steady = SteadySteps(scheduler)

    def run(self, arrivals: Seq[Arrival]) -> SimulationFigures:
        """Play a load, which is in order, to its end."""
        scheduler, runner = self.scheduler, self.runner
        num_taken = 0
        while True:
            while num_taken < len(arrivals) and arrivals[num_taken].time_s <= runner.now:
                self.add(arrivals[num_taken])
                num_taken += 1
            if self.has_steps:
                next_s = arrivals[num_taken].time_s if num_taken < len(arrivals) else math.inf
                self.step(until=next_s if scheduler.disk is not None else math.inf)
                self.repeat(next_s)
            elif num_taken < len(arrivals):
                runner.wait_until(arrivals[num_taken].time_s)
            else:
                break
        return self.finish()

    @property
    def has_steps(self) -> bool:
        """Whether there is a step to run before the next request comes."""
        scheduler = self.scheduler
        # Saves to disk take long, and hold up nobody who comes while they go on.
        return bool(scheduler.queue.requests) or (scheduler.disk is None and scheduler.has_unfinished())

    def add(self, arrival: Arrival, number: int | None = None, keys: Seq[bytes] = ()) -> int | None:
        """A request has come. Returns its sequence's id; None where it can never run here.

        Args:
            arrival: its features.
            number: by which it is told from all others, ascending; by default it is counted.
            keys: of its prompt's blocks, where somebody has made them already (`prompt_keys`).
        """
        number = self._num_added if number is None else number
        self._num_added = number + 1
        prompt = arrival.prompt_token_ids
        if prompt is None:  # numbers that no other prompt has: blocks are found by the tokens in them and before them
            prompt = [number + 1] * arrival.num_prompt_tokens
        request = Request(
            f"request-{number}",
            prompt,
            _PARAMS,
            order=(arrival.priority, number),
            seed=number,
            ends=EndRules(arrival.num_output_tokens),
            kv=KVScope(ROOT, documents=arrival.documents),
        )
        try:
            self.scheduler.add(request)
        except ValueError:
            self.figures.num_refused += 1
            return None
        self.figures.num_cut += request.max_tokens < arrival.num_output_tokens
        took = arrival._replace(num_output_tokens=request.max_tokens, prompt_token_ids=None, documents=())
        first = request.sequences[0]
        if request.root == ROOT:
            num_full = (arrival.num_prompt_tokens + request.max_tokens) // self.scheduler.config.block_size
            known = list(keys) if prompt is arrival.prompt_token_ids else _names(number, num_full)
            self.scheduler.kv.set_keys(first, known)
        self.started.append((first.seq_id, took))
        return first.seq_id

    def step(self, until: float = math.inf) -> SchedulerOutput:
        """Run the next step, which waits no longer than `until` for a transfer. Returns what it was."""
        scheduler, runner = self.scheduler, self.runner
        if (changes := runner.poll_store()) is not None:
            scheduler.apply_store_changes(changes)
        out = scheduler.schedule()
        result = runner.execute(out, until)
        took = runner.last
        has_happened = out.seq_ids or out.claims or result.transfers or took.wait_s
        if not has_happened and scheduler.queue.requests:
            raise RuntimeError(f"step {out.step_id}: {len(scheduler.queue.requests)} requests, and none goes on")
        if self.observer is not None:
            self.observer.observe(took.shape, took.compute_s, result.transfers)
        else:
            record_recomputed(scheduler.recovery.log, runner.hardware.costs, took.shape, took.compute_s)
        self.updates = scheduler.update(result, only_ended=True)
        over = scheduler.recovery.log.closed
        while over:  # the log keeps the latest only
            self.recoveries.append(over.popleft())
        self.timeline.note(result.seq_ids, runner.now)
        figures = self.figures
        if result.seq_ids:
            figures.makespan_s = runner.now
        figures.num_steps += 1
        figures.num_scheduled_tokens += out.total_tokens
        figures.compute_s += took.compute_s
        figures.stall_s += took.stall_s
        figures.wait_s += took.wait_s
        return out

    def repeat(self, before: float, most: int = _MOST_AT_ONCE) -> list[float]:
        """Run the steps that follow, as long as each brings every sequence one more token, and all that is decided is
        to go on: what `step` would do, in a small part of its time.

        Args:
            before: when they have begun.
            most: so many of them.

        Returns:
            The seconds of each.
        """
        scheduler, runner = self.scheduler, self.runner
        if runner.now >= before:
            return []
        seqs, most = self._steady.ahead(runner.batch.steady_ids, most)
        if not seqs:
            return []
        seconds = runner.seconds_ahead(scheduler.stages.current, most)
        begins = accumulate(seconds, initial=runner.now)
        del seconds[bisect_left(list(begins), before) :]
        del seconds[self._steady.make(seqs, len(seconds), TOKEN) :]
        if not seconds:
            return []
        context = runner.batch.context
        self.timeline.note_again(runner.repeat(seconds))
        figures = self.figures
        figures.makespan_s = runner.now
        for number, each in enumerate(seconds):
            figures.compute_s += each
            if self.observer is not None:
                self.observer.observe(StepShape(len(seqs), len(seqs), 0.0, context + number * len(seqs)), each, ())
        figures.num_steps += len(seconds)
        figures.num_scheduled_tokens += len(seconds) * len(seqs)
        return seconds

    def goes_on_until(self, most: int = _MOST_AT_ONCE) -> float:
        """When `repeat` will have run its steps, if nobody comes before: until then nothing is decided."""
        scheduler, now = self.scheduler, self.runner.now
        seqs, most = self._steady.ahead(self.runner.batch.steady_ids, most)
        if seqs and len(seqs) * scheduler.kv.blocks_for(most + 1) <= scheduler.kv.pool.num_available:
            for each in self.runner.seconds_ahead(scheduler.stages.current, most):
                now += each
        return now

    def finish(self) -> SimulationFigures:
        """What it came to; all requests are over.

        Raises:
            ValueError: none of them could run.
        """
        self.timeline.note([], self.runner.now)
        figures, scheduler = self.figures, self.scheduler
        if not self.started:
            raise ValueError(
                f"none of {figures.num_refused} requests fits max_model_len={scheduler.config.max_model_len}"
            )
        figures.num_requests = len(self.started)
        figures.num_prompt_tokens = sum(arrival.num_prompt_tokens for _, arrival in self.started)
        figures.num_output_tokens = sum(arrival.num_output_tokens for _, arrival in self.started)
        figures.ttft_s, figures.tpot_s = latencies(self.timeline, self.started)
        figures.itl_s = self.timeline.gaps()
        figures.num_preemptions = scheduler.counts.preemptions
        figures.num_recomputed_tokens = scheduler.counts.recomputed_tokens
        figures.hits_by_tier = dict(sorted(scheduler.counts.hits_by_tier.items()))
        figures.prefix_ways = dict(sorted(scheduler.prefixes.ways.items()))
        modes = Counter(recovery.outcome for recovery in self.recoveries)
        figures.preemptions_by_mode = dict(sorted(modes.items()))
        figures.save_s = sum(recovery.save_s for recovery in self.recoveries)
        figures.load_s = sum(recovery.load_s for recovery in self.recoveries)
        figures.recompute_s = sum(recovery.compute_s for recovery in self.recoveries)
        return figures


_PARAMS = SamplingParams(max_tokens=None, ignore_eos=True)
_PLACES: list[bytes] = []  #: of blocks in their prompts and answers, as their names have them
ROOT = b""  #: of the namespace in which simulated requests have their KV


def _names(number: int, num_blocks: int) -> list[bytes]:
    """Of the blocks of a request, answer and all, that begins as no other does: names have nothing more to tell.

    (Where it is given none, the scheduler makes digests, which takes as long as all that it decides.)
    """
    own = number.to_bytes(8, "little")
    while len(_PLACES) < num_blocks:
        _PLACES.append(len(_PLACES).to_bytes(4, "little"))
    return [own + place for place in _PLACES[:num_blocks]]


def prompt_keys(arrival: Arrival, block_size: int) -> list[bytes]:
    """The names of the full blocks of a prompt; none where nobody shares any of it."""
    keys: list[bytes] = []
    if arrival.prompt_token_ids is not None:
        num_full = len(arrival.prompt_token_ids) // block_size
        extend_keys(keys, ROOT, PUBLIC_ONLY, arrival.prompt_token_ids, block_size, num_full)
    return keys


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
