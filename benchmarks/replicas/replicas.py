"""A fleet of replicas of one model on one virtual clock, behind the router of `quire serve --ray`.

Router, autoscaler and schedulers are the real ones. The router knows only what replicas reported at the end of a step.
Equal loads give equal figures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.replicas.virtual_replica import FIRST_STAGE, ColdStart, VirtualReplica
from quire.config import SchedulerConfig
from quire.core.block_keys import PUBLIC_ONLY, extend_keys
from quire.routing.policy import NO_SLO, SLO
from quire.routing.replicas import Autoscaler, Autoscaling, ReplicaRouter, RoutedRequest
from quire.simulate.hardware import HardwareProfile
from quire.simulate.simulation import ROOT, Arrival, SimulationFigures
from quire.simulate.token_times import Distribution, distribution

TICK_S = 0.25  #: between two looks of the autoscaler


@dataclass
class FleetFigures:
    """Figures of a load on a fleet, in seconds of the virtual clock."""

    num_requests: int = 0
    num_refused: int = 0  #: too long for the limits ever to run
    num_kept: int = 0  #: requests within the SLO
    num_steps: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    makespan_s: float = 0.0  #: from the start to the last token
    replica_s: float = 0.0  #: of all replicas, from when each was asked for to its end: the cost
    num_started: int = 0  #: replicas, over the run
    most_replicas: int = 0  #: at once, with those that drain: Ray Serve starts new ones beside them
    hit_share: float = 0.0  #: of prompts' tokens, those whose KV was found
    busiest_share: float = 0.0  #: of the requests, that the replica with the most had; 1 / N is even
    ttft_s: Distribution | None = None
    tpot_s: Distribution | None = None
    by_replica: list[SimulationFigures] = field(default_factory=list)  #: of each that had requests, by its start

    @property
    def goodput(self) -> float:
        """Share of requests that keep the SLO."""
        return self.num_kept / self.num_requests

    @property
    def replica_s_per_kept(self) -> float | None:
        """Replica-seconds per request within the SLO."""
        return self.replica_s / self.num_kept if self.num_kept else None


def simulate_replicas(
    arrivals: Iterable[Arrival],
    hardware: HardwareProfile,
    config: SchedulerConfig,
    num_replicas: int,
    *,
    routing: str = "prefix",
    recovery: str = "cost",
    slo: SLO = NO_SLO,
    cold_start: ColdStart | None = None,
    scaling: Autoscaling | None = None,
    keys: Sequence[Sequence[bytes]] | None = None,
    note_ended: Callable[[int], None] = lambda count: None,
) -> FleetFigures:
    """Run a load to its end.

    Args:
        arrivals: the load, in any order.
        hardware: costs of steps and transfers of every replica.
        config: pool and limits of each replica, with `block_bytes` and without a disk tier.
        num_replicas: complete replicas from the start; ignored with `scaling`.
        routing: the router's policy.
        recovery: recovery policy of each scheduler.
        slo: limits of the counted requests.
        cold_start: duration of later starts.
        scaling: autoscaling limits.
        keys: block keys of the prompts in order of arrival, if known.
        note_ended: callback with the number of ended requests.

    Raises:
        ValueError: no request fits the limits.
        RoutingError: the policy is unknown.
    """
    ordered = sorted(arrivals, key=lambda arrival: arrival.time_s)
    fleet = Fleet(hardware, config, routing, recovery, slo, cold_start or ColdStart(), scaling, note_ended)
    for _ in range(num_replicas if scaling is None else 0):
        fleet.start(0.0, is_warm=True)
    return fleet.play(ordered, [_prompt_keys(each, config.block_size) for each in ordered] if keys is None else keys)


def _prompt_keys(arrival: Arrival, block_size: int) -> list[bytes]:
    """Keys of a prompt's full blocks; none without token ids."""
    keys: list[bytes] = []
    if arrival.prompt_token_ids is not None:
        num_full = len(arrival.prompt_token_ids) // block_size
        extend_keys(keys, ROOT, PUBLIC_ONLY, arrival.prompt_token_ids, block_size, num_full)
    return keys


class Fleet:
    """Replicas with their router and autoscaler."""

    def __init__(
        self,
        hardware: HardwareProfile,
        config: SchedulerConfig,
        routing: str,
        recovery: str,
        slo: SLO,
        cold_start: ColdStart,
        scaling: Autoscaling | None,
        note_ended: Callable[[int], None],
    ) -> None:
        self.router = ReplicaRouter(routing)
        self.replicas: list[VirtualReplica] = []  #: all that there ever were, by their start
        self._scaler = None if scaling is None else Autoscaler(scaling)
        self._hardware, self._config, self._recovery = hardware, config, recovery
        self._slo, self._cold_start = slo, cold_start
        self._alive: dict[str, VirtualReplica] = {}
        self._coming: deque[VirtualReplica] = deque()  #: these load, the first one first
        self._held: deque[tuple[int, Arrival, Sequence[bytes]]] = deque()  #: requests that no replica may have yet
        self._next_tick = 0.0 if scaling is not None else math.inf
        self._figures = FleetFigures()
        self._num_ended, self._note_ended = 0, note_ended
        self._needs_forecasts = routing == "slo" or (scaling is not None and scaling.ttft_s is not None)

    def start(self, now: float, *, is_warm: bool = False) -> None:
        """Start a replica; a warm one serves the full model at once."""
        replica = VirtualReplica(
            f"replica-{len(self.replicas)}",
            self._hardware,
            self._config,
            self._recovery,
            started_at=now,
            cold_start=None if is_warm else self._cold_start,
            has_forecasts=self._needs_forecasts,
            note_ended=self._count_ended,
        )
        self.replicas.append(replica)
        self._alive[replica.name] = replica
        self._coming.append(replica)
        self._figures.most_replicas = max(self._figures.most_replicas, len(self._alive))
        if is_warm:
            self._let_serve(now)

    def _let_serve(self, now: float) -> None:
        while self._coming and self._coming[0].serves_at <= now:
            replica = self._coming.popleft()
            size = self._config.num_blocks, self._config.block_size
            self.router.add(replica.name, num_blocks=size[0], block_size=size[1], stage=FIRST_STAGE)
            if self._needs_forecasts:
                self.router.report(replica.name, now, replica.forecast())
        held, self._held = self._held, deque()
        for request in held:
            self._send(*request, now)

    def _count_ended(self, count: int) -> None:
        self._num_ended += count
        self._note_ended(self._num_ended)

    def _scale(self, now: float) -> None:
        assert self._scaler is not None
        serving = [each for each in self.router.replicas.values() if not each.is_draining]
        num_requests = len(self._held) + sum(each.num_ongoing for each in self._alive.values())
        typical = self._held[0][1].num_prompt_tokens if self._held else 1
        ttft_s = self.router.soonest_ttft_s(typical, now) if self._needs_forecasts else 0.0
        num_coming = len(self._coming)
        wanted = self._scaler.decide(now, num_requests, num_coming, len(serving), ttft_s)
        for _ in range(wanted - len(serving) - num_coming):
            self.start(now)
        for each in sorted(serving, key=lambda each: each.load)[: max(0, len(serving) + num_coming - wanted)]:
            self.router.drain(each.name)
        for name in [each.name for each in self.router.replicas.values() if each.is_draining]:
            if not self._alive[name].num_ongoing:
                self.router.remove(name)
                self._alive.pop(name).stopped_at = now

    def play(self, arrivals: Sequence[Arrival], keys: Sequence[Sequence[bytes]]) -> FleetFigures:
        """Run a sorted load to its end."""
        refused = 0
        for number, (arrival, its_keys) in enumerate(zip(arrivals, keys, strict=True)):
            if arrival.num_prompt_tokens >= self._config.max_model_len:
                refused += 1
                continue
            self._advance(arrival.time_s)
            self._send(number, arrival, its_keys, arrival.time_s)
        if refused == len(arrivals):
            raise ValueError(f"none of {refused} requests fits max_model_len={self._config.max_model_len}")
        while self._held or (self._scaler is not None and any(each.num_ongoing for each in self._alive.values())):
            self._advance(self._next_event())
        for replica in self.replicas:
            replica.run_until(math.inf)
        self._figures.num_refused = refused
        return self._sum_up(arrivals)

    def _next_event(self) -> float:
        return min(self._next_tick, self._coming[0].serves_at if self._coming else math.inf)

    def _advance(self, now: float) -> None:
        while (event := self._next_event()) <= now:
            self._run(event)
            self._let_serve(event)
            if event == self._next_tick:
                self._next_tick += TICK_S
                self._scale(event)
        self._run(now)

    def _run(self, now: float) -> None:
        router = self.router
        for replica in self._alive.values():
            if replica.wakes_at > now:
                continue
            for news in replica.run_until(now):
                router.report(replica.name, news.time_s, news.forecast, news.taken, news.stage)
                for request_id in news.ended:
                    router.end(replica.name, request_id)

    def _send(self, number: int, arrival: Arrival, keys: Sequence[bytes], now: float) -> None:
        request = RoutedRequest(f"request-{number}", arrival.num_prompt_tokens, keys)
        routed = self.router.route(request, now)
        if routed is None:
            self._held.append((number, arrival, keys))
        else:
            self._alive[routed.replica].send(number, arrival, keys, now)

    def _sum_up(self, arrivals: Sequence[Arrival]) -> FleetFigures:
        figures, slo = self._figures, self._slo
        outcomes: dict[int, tuple[float, float]] = {}
        for replica in self.replicas:
            if replica.numbers:
                outcomes |= replica.outcomes()
                figures.by_replica.append(replica.simulation.finish())
        ttft_s = [ttft for ttft, _ in outcomes.values()]
        tpot_s = [tpot for _, tpot in outcomes.values() if tpot]
        figures.num_requests = len(outcomes)
        figures.num_kept = sum(slo.is_kept(ttft, tpot) for ttft, tpot in outcomes.values())
        figures.ttft_s, figures.tpot_s = distribution(ttft_s), distribution(tpot_s)
        each = figures.by_replica
        figures.num_steps = sum(found.num_steps for found in each)
        figures.num_output_tokens = sum(found.num_output_tokens for found in each)
        figures.num_preemptions = sum(found.num_preemptions for found in each)
        figures.makespan_s = max(found.makespan_s for found in each)
        figures.num_started = len(self.replicas)
        found_tokens = sum(sum(found.hits_by_tier.values()) for found in each)
        figures.hit_share = found_tokens / sum(found.num_prompt_tokens for found in each)
        figures.busiest_share = max(found.num_requests for found in each) / figures.num_requests
        ends = [figures.makespan_s if replica.stopped_at is None else replica.stopped_at for replica in self.replicas]
        figures.replica_s = sum(
            max(0.0, end - replica.started_at) for end, replica in zip(ends, self.replicas, strict=True)
        )
        return figures
