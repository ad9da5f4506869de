"""Arrival times of an open loop: drawn from a process or taken from a recording, at any rate. Pure arithmetic."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quire.bench.workload import Lengths, Workload


@dataclass(frozen=True)
class OpenLoop:
    """Requests and their arrivals, drawn or recorded. Another rate scales all gaps of a recording."""

    make: Callable[[int], Workload]  #: the first N requests
    arrival_s: Sequence[float] = ()  #: sorted arrivals of a recording; empty: they are drawn
    count: int | None = None  #: requests to draw; None takes those within the duration
    duration_s: float | None = None  #: latest arrival
    burstiness: float = 1.0  #: shape of the gamma-distributed gaps: 1 is a Poisson process, more is steadier
    seed: int = 0

    def at(self, rate: float | None) -> Workload:
        """The requests with arrivals at `rate` per second on average; None keeps a recording's own rate. Raises
        ValueError if no request arrives within the duration, or drawn arrivals have no rate or no end."""
        if self.arrival_s:
            arrivals = self._recorded(rate)
        elif rate is None:
            raise ValueError("give a rate of requests with --request-rate or --sweep, such as --request-rate 2")
        else:
            arrivals = draw_arrivals(rate, self.count, self.duration_s, self.burstiness, self.seed)
        if not arrivals:
            tempo = "" if rate is None else f" at {rate:g}/s"
            raise ValueError(f"no request arrives within {self.duration_s:g} s{tempo}; lengthen --duration")
        workload = self.make(len(arrivals))
        pairs = zip(workload.requests, arrivals, strict=False)
        return replace(workload, requests=[replace(request, arrival_s=arrival) for request, arrival in pairs])

    def _recorded(self, rate: float | None) -> Sequence[float]:
        arrivals = self.arrival_s
        if self.duration_s is not None and rate is None:
            arrivals = [arrival for arrival in arrivals if arrival <= self.duration_s]
        elif self.duration_s is not None and rate is not None and math.isfinite(rate):
            arrivals = arrivals[: max(0, round(rate * self.duration_s))]
        return arrivals if rate is None or not arrivals else pace(arrivals, rate)


def draw_arrivals(
    rate: float, count: int | None, duration_s: float | None, burstiness: float = 1.0, seed: int = 0
) -> list[float]:
    """Draw sorted arrivals. Gaps have the mean 1 / rate and the coefficient of variation 1 / sqrt(burstiness). Raises
    ValueError if neither a count nor a duration bounds the requests."""
    if math.isinf(rate):
        if count is None:
            raise ValueError("requests that all come at once must be counted; give --num-requests")
        return [0.0] * count
    if count is None and duration_s is None:
        raise ValueError("give a duration or a number of requests")
    rng = random.Random(seed)
    arrivals: list[float] = []
    now = 0.0
    while count is None or len(arrivals) < count:
        now += rng.gammavariate(burstiness, 1 / (rate * burstiness))
        if duration_s is not None and now > duration_s:
            break
        arrivals.append(now)
    return arrivals


def pace(arrival_s: Sequence[float], rate: float) -> list[float]:
    """Scale arrivals to `rate` per second on average, the first at 0."""
    first, span = min(arrival_s), max(arrival_s) - min(arrival_s)
    if len(arrival_s) == 1:
        return [0.0]
    if not span:
        raise ValueError("the recorded requests all come at once, and have no rate to change")
    factor = (len(arrival_s) - 1) / span / rate
    return [(arrival - first) * factor for arrival in arrival_s]


def scale_trace(
    lengths: Lengths,
    *,
    time_scale: float = 1.0,
    length_scale: float = 1.0,
    max_input_len: int | None = None,
    max_output_len: int | None = None,
) -> Lengths:
    """Multiply a trace's times and lengths, then cap its lengths. No length falls below 1."""

    def fit(values: Sequence[int], cap: int | None) -> list[int]:
        scaled = [max(1, round(value * length_scale)) for value in values]
        return scaled if cap is None else [min(value, cap) for value in scaled]

    return Lengths(
        prompt=fit(lengths.prompt, max_input_len),
        output=fit(lengths.output, max_output_len),
        arrival_s=[arrival * time_scale for arrival in lengths.arrival_s],
    )
