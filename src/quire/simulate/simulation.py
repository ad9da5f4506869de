"""Run the real scheduler on a virtual clock against a machine's costs. Equal inputs give equal figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver, record_recomputed
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.core.request import EndRules, KVScope, Order, Request
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import SchedulerOutput
from quire.sampling_params import SamplingParams
from quire.simulate.hardware import HardwareProfile
from quire.simulate.token_times import Distribution, Timeline, distribution
from quire.simulate.virtual_runner import VirtualRunner
from quire.simulate.vllm_scheduler import VllmScheduler


class Arrival(NamedTuple):
    """A request, as far as its cost depends on it."""

    time_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt_token_ids: Seq[int] | None = None  #: without it, prompts share no prefix
    priority: int = 0  #: smaller is first
    documents: tuple[int, ...] = ()  #: ends of the documents in its prompt, as in `Request`


@dataclass
class SimulationFigures:
    """Figures of a simulated run, in seconds of the virtual clock."""

    num_requests: int = 0  #: without refused ones
    num_refused: int = 0  #: too long for the limits
    num_cut: int = 0  #: requests with outputs shortened by the limits
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_steps: int = 0
    makespan_s: float = 0.0  #: from the start to the last token
    compute_s: float = 0.0
    stall_s: float = 0.0  #: the engine stopped for copies
    wait_s: float = 0.0  #: all requests waited for blocks
    hits_by_tier: dict[str, int] = field(default_factory=dict)  #: tokens of cached prefixes
    prefix_ways: dict[str, int] = field(default_factory=dict)  #: decisions on prefixes in other tiers
    ttft_s: Distribution | None = None
    tpot_s: Distribution | None = None
    itl_s: Distribution | None = None
    num_preemptions: int = 0
    preemptions_by_mode: dict[str, int] = field(default_factory=dict)  #: "fell back": not all blocks could be swapped
    num_scheduled_tokens: int = 0
    num_recomputed_tokens: int = 0  #: lost by preemptions
    save_s: float = 0.0  #: link time for recovery
    load_s: float = 0.0
    recompute_s: float = 0.0  #: added to steps by recomputing

    @property
    def recovery_s(self) -> float:
        return self.save_s + self.load_s + self.recompute_s

    @property
    def recomputed_share(self) -> float:
        return self.num_recomputed_tokens / self.num_scheduled_tokens


def simulate(
    arrivals: Iterable[Arrival],
    hardware: HardwareProfile,
    config: SchedulerConfig,
    policy: RecoveryPolicy,
    *,
    learner: CostModel | None = None,
    engine: str = "quire",
) -> SimulationFigures:
    """Run a load, in any order, to its end. `config` has pool, limits and `block_bytes`; a disk tier starts empty and
    keeps all documents. `policy` is a fresh one, and `learner` its cost model, by default the profile's own costs.
    The engine "vllm-0.2.4" copies within its steps. ValueError if no request fits, or `block_bytes` or the disk's costs
    are missing; RuntimeError if nothing advances."""
    if (config.num_swap_slots or config.has_disk_tier) and not config.block_bytes:
        raise ValueError("block_bytes=0: the cost of swapping depends on the size of a block; set it")
    if config.has_disk_tier and not hardware.has_disk:
        raise ValueError(f"{hardware.name} has no costs of a disk; add one (with_disk), or leave out the disk tier")
    ordered = sorted(arrivals, key=lambda arrival: arrival.time_s)
    if engine == "vllm-0.2.4":
        hardware = replace(hardware, swap_is_synchronous=True)
    # Simulated texts have no content, so there is nothing to draft.
    config = replace(config, swap_is_synchronous=hardware.swap_is_synchronous, num_speculative_tokens=0)
    make = VllmScheduler if engine == "vllm-0.2.4" else Scheduler
    scheduler = make(config, policy, learner or hardware.costs)
    return Simulation(scheduler, VirtualRunner(hardware, config.block_bytes), learner).run(ordered)


class Simulation:
    """One engine on its virtual clock, step by step. `learner` observes every step and transfer."""

    def __init__(self, scheduler: Scheduler, runner: VirtualRunner, learner: CostModel | None = None) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.observer = None if learner is None else CostObserver(learner, scheduler.recovery.log)
        self.recoveries: list[RecoveryRecord] = []
        self.timeline = Timeline()
        self.started: list[tuple[int, Arrival]] = []  #: seq_id and arrival, shortened to the limits
        self.figures = SimulationFigures()
        self.updates: list[SequenceUpdate] = []  #: of the last step: ended sequences, and maybe others
        self._num_added = 0

    def run(self, arrivals: Seq[Arrival]) -> SimulationFigures:
        """Run a sorted load to its end."""
        scheduler, runner = self.scheduler, self.runner
        num_taken = 0
        while True:
            while num_taken < len(arrivals) and arrivals[num_taken].time_s <= runner.now:
                self.add(arrivals[num_taken])
                num_taken += 1
            if self.has_steps:
                next_s = arrivals[num_taken].time_s if num_taken < len(arrivals) else math.inf
                self.step(until=next_s if scheduler.disk is not None else math.inf)
            elif num_taken < len(arrivals):
                runner.wait_until(arrivals[num_taken].time_s)
            else:
                break
        return self.finish()

    @property
    def has_steps(self) -> bool:
        """Whether there is a step to run before the next arrival."""
        scheduler = self.scheduler
        # Long saves to disk do not delay later arrivals.
        return bool(scheduler.queue.requests) or (scheduler.disk is None and scheduler.has_unfinished())

    def add(self, arrival: Arrival, number: int | None = None, keys: Seq[bytes] = ()) -> int | None:
        """Add a request. Returns its sequence id; None if it exceeds the limits. `number` is unique and ascending, by
        default counted; `keys` are the prompt's block keys, if known."""
        number = self._num_added if number is None else number
        self._num_added = number + 1
        prompt = arrival.prompt_token_ids
        if prompt is None:  # a token that no other prompt has
            prompt = [number + 1] * arrival.num_prompt_tokens
        request = self.make_request(number, prompt, arrival)
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
            known = list(keys) if prompt is arrival.prompt_token_ids else _unique_keys(number, num_full)
            self.scheduler.kv.set_keys(first, known)
        self.started.append((first.seq_id, took))
        return first.seq_id

    def make_request(self, number: int, prompt: Seq[int], arrival: Arrival) -> Request:
        """Make the request of an arrival: one sample."""
        return Request(
            f"request-{number}",
            prompt,
            _PARAMS,
            order=Order(arrival.priority, number),
            seed=number,
            ends=EndRules(arrival.num_output_tokens),
            kv=KVScope(ROOT, documents=arrival.documents),
        )

    def step(self, until: float = math.inf) -> SchedulerOutput:
        """Run the next step, which waits at most until `until` for a transfer. Returns it."""
        scheduler, runner = self.scheduler, self.runner
        if (changes := runner.store.poll()) is not None:
            scheduler.apply_store_changes(changes)
        out = scheduler.schedule()
        result = runner.execute(out, until)
        took = runner.last
        has_happened = out.seq_ids or out.claims or result.transfers or took.wait_s
        if not has_happened and scheduler.queue.requests:
            raise RuntimeError(f"step {out.step_id}: {len(scheduler.queue.requests)} requests, and none advances")
        if self.observer is not None:
            self.observer.observe(took.shape, took.compute_s, result.transfers)
        else:
            record_recomputed(scheduler.recovery.log, runner.hardware.costs, took.shape, took.compute_s)
        self.updates = scheduler.update(result, only_ended=True)
        over = scheduler.recovery.log.closed
        while over:  # the log keeps only the latest
            self.recoveries.append(over.popleft())
        self.timeline.record(result.seq_ids, runner.now)
        figures = self.figures
        if result.seq_ids:
            figures.makespan_s = runner.now
        figures.num_steps += 1
        figures.num_scheduled_tokens += out.total_tokens
        figures.compute_s += took.compute_s
        figures.stall_s += took.stall_s
        figures.wait_s += took.wait_s
        return out

    def finish(self) -> SimulationFigures:
        """Compute the figures after the end of all requests. Raises ValueError if all were refused."""
        self.timeline.record([], self.runner.now)
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
_POSITIONS: list[bytes] = []  #: suffixes of block keys
ROOT = b""  #: root of the block keys


def _unique_keys(number: int, num_blocks: int) -> list[bytes]:
    """Block keys of a request that shares no prefix. (Digests would take as long as scheduling.)"""
    own = number.to_bytes(8, "little")
    while len(_POSITIONS) < num_blocks:
        _POSITIONS.append(len(_POSITIONS).to_bytes(4, "little"))
    return [own + position for position in _POSITIONS[:num_blocks]]


def latencies(
    timeline: Timeline, requests: Iterable[tuple[int, Arrival]]
) -> tuple[Distribution | None, Distribution | None]:
    """TTFT and TPOT of ended requests. A single token has no TPOT."""
    ttft_s, tpot_s = [], []
    for seq_id, arrival in requests:
        first = timeline.first[seq_id]
        ttft_s.append(first - arrival.time_s)
        if arrival.num_output_tokens > 1:
            tpot_s.append((timeline.last(seq_id) - first) / (arrival.num_output_tokens - 1))
    return distribution(ttft_s), distribution(tpot_s)
