"""One replica on the fleet's clock: its start, its stages and its reports.

Forecasts, accepted and ended requests are known outside when the step ends that brought them. A cold replica serves a
first stage of the model until the full one has arrived; then the real scheduler promotes its requests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.slowed_costs import SlowedCosts
from quire.config import SchedulerConfig
from quire.core.forecaster import Forecaster
from quire.core.scheduler import Scheduler
from quire.forecast import Forecast
from quire.simulate.hardware import HardwareProfile
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, Simulation
from quire.simulate.virtual_runner import VirtualRunner

FIRST_STAGE, WHOLE_STAGE = 1, 2
_WHOLE_ROOT = b"the whole model"


@dataclass(frozen=True)
class ColdStart:
    """Duration of a replica's start. Raises ValueError unless 0 <= first_s <= whole_s and 0 < share <= 1."""

    first_s: float = 0.0  #: until it serves
    whole_s: float = 0.0  #: until all of the model is there; as long, where it is not packed in stages
    share: float = 0.5  #: of the whole model's steps, that the first stage's take

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.whole_s < float("inf"):
            raise ValueError(
                f"a replica serves after {self.first_s:g} s and is whole after {self.whole_s:g} s; expected 0 <= FIRST "
                "<= WHOLE"
            )
        if not 0 < self.share <= 1:
            raise ValueError(f"a first stage whose steps take {self.share:g} of the whole model's; expected up to 1")


class News(NamedTuple):
    """A report of a replica."""

    time_s: float
    forecast: Forecast | None = None
    taken: Sequence[str] = ()  #: ids of requests
    ended: Sequence[str] = ()
    stage: int = 0  #: that it serves from now on; 0 is the same as before


class VirtualReplica:
    """A replica in the fleet.

    Args:
        name: the router's name for it.
        hardware: costs of its steps.
        config: pool and limits, with `block_bytes`.
        recovery: recovery policy of its scheduler.
        started_at: start time on the fleet's clock.
        cold_start: duration of the start; None is ready at once.
        has_forecasts: make forecasts, which take longer than a small step.
        note_ended: callback with the number of requests that ended with a step.
    """

    def __init__(
        self,
        name: str,
        hardware: HardwareProfile,
        config: SchedulerConfig,
        recovery: str,
        *,
        started_at: float = 0.0,
        cold_start: ColdStart | None = None,
        has_forecasts: bool = True,
        note_ended: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.name = name
        self.started_at = started_at
        self.stopped_at: float | None = None
        cold = cold_start or ColdStart()
        self.serves_at = started_at + cold.first_s
        self._whole_at = started_at + cold.whole_s if cold.whole_s > cold.first_s else None
        self._costs = SlowedCosts(hardware.costs, 1.0)
        scheduler = Scheduler(config, make_compared_policy(recovery), hardware.costs)
        self.simulation = Simulation(scheduler, VirtualRunner(hardware, config.block_bytes))
        self._forecaster = Forecaster(scheduler, self._costs) if has_forecasts else None
        if self._whole_at is not None:
            self._costs.factor = cold.share
            self.simulation.runner.stage_shares[FIRST_STAGE] = cold.share
        self.simulation.runner.wait_until(self.serves_at)
        self.num_ongoing = 0
        self._note_ended = note_ended
        self.wakes_at = self._changes_at  #: when it may next have something to do or to tell
        self._inbox: deque[tuple[int, Arrival, Sequence[bytes]]] = deque()
        self._news: deque[News] = deque()
        self.numbers: list[int] = []  #: of its requests, as they were taken in

    @property
    def is_busy(self) -> bool:
        return bool(self._inbox) or self.simulation.has_steps

    def forecast(self) -> Forecast:
        """The forecast of a fresh replica."""
        assert self._forecaster is not None, "forecasts are off"
        return self._forecaster.forecast(self.simulation.runner.now)

    def send(self, number: int, arrival: Arrival, keys: Sequence[bytes], now: float) -> None:
        """Send a request.

        Args:
            number: its number in the fleet's load.
            arrival: the request.
            keys: block keys of its prompt.
            now: time on the fleet's clock.
        """
        self._run_until(now)
        if not self.is_busy:
            self.simulation.runner.wait_until(now)
        self.num_ongoing += 1
        self._inbox.append((number, arrival, keys))
        self.wakes_at = now

    def run_until(self, now: float) -> list[News]:
        """Run all steps that begin before `now`; the last one may end after it. Returns the news until then."""
        self._run_until(now)
        if self._whole_at is not None and self._whole_at <= now and not self.is_busy:
            self._promote(now)
        news, found = self._news, []
        while news and news[0].time_s <= now:
            found.append(news.popleft())
        if news:
            self.wakes_at = news[0].time_s
        elif self.is_busy:
            self.wakes_at = self.simulation.runner.now
        else:
            self.wakes_at = self._changes_at
        return found

    def _run_until(self, now: float) -> None:
        simulation, runner, scheduler = self.simulation, self.simulation.runner, self.simulation.scheduler
        while runner.now < now and self.is_busy:
            self._promote()
            taken = self._take_inbox()
            num_ended = scheduler.counts.ended_sequences
            out = simulation.step()
            forecast = None
            if self._forecaster is not None:
                is_steady = out.total_tokens == len(out.seq_ids)
                forecast = self._forecaster.record_step(runner.now, runner.last.compute_s, is_steady=is_steady)
            ended = self._take_ended() if scheduler.counts.ended_sequences != num_ended else ()
            if taken or ended or forecast is not None:
                self._news.append(News(runner.now, forecast, taken, ended))

    @property
    def _changes_at(self) -> float:
        return math.inf if self._whole_at is None else self._whole_at

    def _promote(self, now: float | None = None) -> None:
        runner = self.simulation.runner
        if self._whole_at is None or (runner.now if now is None else now) < self._whole_at:
            return
        self._costs.factor = 1.0
        self.simulation.scheduler.promote(WHOLE_STAGE, _WHOLE_ROOT)
        self._news.append(News(max(runner.now, self._whole_at), stage=WHOLE_STAGE))
        self._whole_at = None

    def _take_inbox(self) -> list[str]:
        taken = []
        while self._inbox:
            number, arrival, keys = self._inbox.popleft()
            if self.simulation.add(arrival, number, keys) is None:
                raise ValueError(f"a request of {arrival.num_prompt_tokens} tokens fits no limits of this replica")
            taken.append(f"request-{number}")
            self.numbers.append(number)
        return taken

    def _take_ended(self) -> list[str]:
        seqs = [update.sequence for update in self.simulation.updates]
        ended = [seq.request.request_id for seq in seqs if seq.finish_reason is not None]
        self.num_ongoing -= len(ended)
        self._note_ended(len(ended))
        return ended

    def outcomes(self) -> dict[int, tuple[float, float]]:
        """TTFT and TPOT of all ended requests by number; the TPOT of a single token is 0."""
        timeline = self.simulation.timeline
        timeline.record([], self.simulation.runner.now)
        found = {}
        for number, (seq_id, arrival) in zip(self.numbers, self.simulation.started, strict=True):
            first, num_gaps = timeline.first[seq_id], arrival.num_output_tokens - 1
            tpot_s = (timeline.last(seq_id) - first) / num_gaps if num_gaps else 0.0
            found[number] = (first - arrival.time_s, tpot_s)
        return found
