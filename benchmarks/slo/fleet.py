"""Engines of several models on one virtual clock, and a router between them.

The router knows an engine's report at the end of its last step and the requests sent since, as a server does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.forecaster import Forecaster
from quire.core.scheduler import Scheduler
from quire.forecast import Forecast, Prediction
from quire.simulate.hardware import HardwareProfile
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, Simulation
from quire.simulate.virtual_runner import VirtualRunner

Route = Callable[[Arrival, Mapping[str, Forecast]], str]  #: to an engine's name


@dataclass(frozen=True, slots=True)
class Served:
    """One request with its forecast and its latencies."""

    arrival: Arrival
    engine: str
    predicted: Prediction  #: when it was sent there
    ttft_s: float
    tpot_s: float  #: 0 where there is one token alone


class VirtualEngine:
    """One engine of a fleet.

    Args:
        hardware: costs of its steps.
        config: pool and limits, with `block_bytes`.
        learner: a cost model that learns from its steps; None uses the profile's costs.
    """

    def __init__(self, hardware: HardwareProfile, config: SchedulerConfig, learner: CostModel | None = None) -> None:
        costs = learner or hardware.costs
        scheduler = Scheduler(config, make_compared_policy("recompute"), costs)
        self.simulation = Simulation(scheduler, VirtualRunner(hardware, config.block_bytes), learner)
        self._forecaster = Forecaster(scheduler, costs)
        self._reported = self._forecaster.forecast(0.0)  #: what is known of it outside
        self._under_way: Forecast | None = None  #: what will be once the step under way has ended
        self._inbox: deque[Arrival] = deque()
        self._untaken: deque[tuple[float, int]] = deque()  #: when each taken request was taken in, and its tokens

    def send(self, arrival: Arrival) -> None:
        """Send a request now."""
        if not self.simulation.scheduler.queue.requests and not self._inbox:
            self.simulation.runner.wait_until(arrival.time_s)
        self._inbox.append(arrival)

    def run_until(self, now: float) -> None:
        """Run all steps that begin before `now`; the last one may end after it."""
        simulation, runner = self.simulation, self.simulation.runner
        while runner.now < now and (self._inbox or simulation.scheduler.queue.requests):
            self._report()
            self._take_inbox()
            out = simulation.step()
            is_steady = out.total_tokens == len(out.seq_ids)
            self._under_way = self._forecaster.record_step(runner.now, runner.last.compute_s, is_steady=is_steady)

    def forecast(self, now: float) -> Forecast:
        """The forecast that the router knows."""
        if self._under_way is not None and self._under_way.time <= now:
            self._report()
        reported = self._reported
        while self._untaken and self._untaken[0][0] < reported.time:
            self._untaken.popleft()
        sent = [tokens for _, tokens in self._untaken] + [arrival.num_prompt_tokens for arrival in self._inbox]
        return reported.later(now - reported.time, len(sent), sum(sent))

    def _report(self) -> None:
        self._reported, self._under_way = self._under_way or self._reported, None

    def _take_inbox(self) -> None:
        while self._inbox:
            arrival = self._inbox.popleft()
            self._untaken.append((self.simulation.runner.now, arrival.num_prompt_tokens))
            if self.simulation.add(arrival) is None:
                raise ValueError(f"a request of {arrival.num_prompt_tokens} tokens fits no limits of this engine")

    def outcomes(self) -> list[tuple[float, float]]:
        """TTFT and TPOT of all ended requests, in order of arrival."""
        timeline, found = self.simulation.timeline, []
        timeline.record([], self.simulation.runner.now)
        for seq_id, arrival in self.simulation.started:
            first, num_gaps = timeline.first[seq_id], arrival.num_output_tokens - 1
            found.append((first - arrival.time_s, (timeline.last(seq_id) - first) / num_gaps if num_gaps else 0.0))
        return found


def simulate_fleet(arrivals: Iterable[Arrival], engines: Mapping[str, VirtualEngine], route: Route) -> list[Served]:
    """Run a load to its end.

    Args:
        arrivals: the load, in any order.
        engines: fresh engines by name.
        route: chooses the engine of a request.

    Raises:
        ValueError: a request does not fit its engine.
    """
    sent: list[tuple[Arrival, str, Prediction]] = []
    for arrival in sorted(arrivals, key=lambda each: each.time_s):
        for engine in engines.values():
            engine.run_until(arrival.time_s)
        forecasts = {name: engine.forecast(arrival.time_s) for name, engine in engines.items()}
        name = route(arrival, forecasts)
        sent.append((arrival, name, forecasts[name].predict(arrival.num_prompt_tokens)))
        engines[name].send(arrival)
    for engine in engines.values():
        engine.run_until(float("inf"))
    outcomes = {name: iter(engine.outcomes()) for name, engine in engines.items()}
    return [Served(arrival, name, predicted, *next(outcomes[name])) for arrival, name, predicted in sent]
