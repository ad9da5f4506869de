"""When requests come: drawn from a process, or as a recording has them, at any rate.

An open loop: arrivals are decided before the first request is sent and never wait for an answer. Pure numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quire.bench.workload import Lengths, Workload


@dataclass(frozen=True)
class Load:
    """What is asked of a server, and when: arrivals are drawn, or those of a recording (a trace, a workload file).

    Another rate stretches or squeezes all gaps of a recording alike, so that bursts stay bursts. A recording is faster
    here and slower there: within a duration the requests that are played have the rate that was asked for, not the
    whole recording.
    """

    make: Callable[[int], Workload]  #: of this many requests, a recording's first ones
    arrival_s: Sequence[float] = ()  #: a recording's, of all requests and in order; empty: they are drawn
    count: int | None = None  #: to draw; None takes the requests that arrive within the duration
    duration_s: float | None = None  #: no request arrives later
    burstiness: float = 1.0  #: shape of the gamma-distributed gaps: 1 is a Poisson process, more is steadier
    seed: int = 0

    def at(self, rate: float | None) -> Workload:
        """The requests with their arrivals, `rate` of them a second on average; None keeps a recording's own rate."""
        arrivals = self._recorded(rate) if self.arrival_s else self._drawn(rate)
        if not arrivals:
            tempo = "" if rate is None else f" at {rate:g}/s"
            raise ValueError(f"no request arrives within {self.duration_s:g} s{tempo}; lengthen --duration")
        workload = self.make(len(arrivals))
        pairs = zip(workload.requests, arrivals, strict=False)
        return replace(workload, requests=[replace(request, arrival_s=arrival) for request, arrival in pairs])

    def _drawn(self, rate: float | None) -> Sequence[float]:
        if rate is None:
            raise ValueError("how fast shall requests come? Give --request-rate or --sweep, such as --request-rate 2")
        return draw_arrivals(
            rate, count=self.count, duration_s=self.duration_s, burstiness=self.burstiness, seed=self.seed
        )

    def _recorded(self, rate: float | None) -> Sequence[float]:
        arrivals = self.arrival_s
        if self.duration_s is not None and rate is None:
            arrivals = [arrival for arrival in arrivals if arrival <= self.duration_s]
        elif self.duration_s is not None and rate is not None and math.isfinite(rate):
            arrivals = arrivals[: max(0, round(rate * self.duration_s))]
        return arrivals if rate is None or not arrivals else pace(arrivals, rate)


def draw_arrivals(
    rate: float, *, count: int | None, duration_s: float | None, burstiness: float = 1.0, seed: int = 0
) -> list[float]:
    """Seconds from the start at which requests arrive, in order.

    Gaps are independent and have the mean 1 / rate and the coefficient of variation 1 / sqrt(burstiness).

    Raises:
        ValueError: nothing says how many requests there are.
    """
    if math.isinf(rate):
        if count is None:
            raise ValueError("requests that all come at once must be counted; give --num-requests")
        return [0.0] * count
    if count is None and duration_s is None:
        raise ValueError("how long shall requests come? Give a duration or a number of requests")
    rng = random.Random(seed)
    arrivals: list[float] = []
    now = 0.0
    while count is None or len(arrivals) < count:
        now += rng.gammavariate(burstiness, 1 / (rate * burstiness))
        if duration_s is not None and now > duration_s:
            break
        arrivals.append(now)
    return arrivals


def mean_rate(arrival_s: Sequence[float]) -> float:
    """Requests a second over the time from the first to the last; infinity where all come at once."""
    span = max(arrival_s) - min(arrival_s)
    return (len(arrival_s) - 1) / span if span else math.inf


def pace(arrival_s: Sequence[float], rate: float) -> list[float]:
    """The same arrivals in another tempo: `rate` a second on average, the first at 0."""
    first = min(arrival_s)
    if len(arrival_s) == 1:
        return [0.0]
    natural = mean_rate(arrival_s)
    if math.isinf(natural):
        raise ValueError("the recorded requests all come at once, so that they have no rate to change")
    return [(arrival - first) * natural / rate for arrival in arrival_s]


def scale_trace(
    lengths: Lengths,
    *,
    time_scale: float = 1.0,
    length_scale: float = 1.0,
    max_input_len: int | None = None,
    max_output_len: int | None = None,
) -> Lengths:
    """A trace made to fit a model: times and lengths are multiplied, then lengths are capped. None falls below 1."""

    def fit(values: Sequence[int], cap: int | None) -> list[int]:
        scaled = [max(1, round(value * length_scale)) for value in values]
        return scaled if cap is None else [min(value, cap) for value in scaled]

    return Lengths(
        prompt=fit(lengths.prompt, max_input_len),
        output=fit(lengths.output, max_output_len),
        arrival_s=[arrival * time_scale for arrival in lengths.arrival_s],
    )
