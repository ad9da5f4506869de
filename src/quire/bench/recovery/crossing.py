"""What the crossing point depends on: the bandwidth of the link, against what computing costs. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.costs.interface import Costs, Prediction, StepShape

_BISECTIONS = 60


class RateLimitedCosts:
    """The costs of a machine whose link is held to a bandwidth in bytes a second (see `tiers.rate_limiter`)."""

    def __init__(self, costs: Costs, bandwidth: float) -> None:
        self._costs = costs
        self._bandwidth = bandwidth

    @property
    def is_link_usable(self) -> bool:
        return self._costs.is_link_usable

    def step(self, shape: StepShape) -> Prediction:
        return self._costs.step(shape)

    def recompute(
        self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None
    ) -> Prediction:
        return self._costs.recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    def save(self, num_bytes: int) -> Prediction:
        return self._paced(self._costs.save(num_bytes), num_bytes)

    def load(self, num_bytes: int) -> Prediction:
        return self._paced(self._costs.load(num_bytes), num_bytes)

    def _paced(self, own: Prediction, num_bytes: int) -> Prediction:
        paced = Prediction(num_bytes / self._bandwidth)
        return own if own.seconds > paced.seconds else paced


def bandwidth_for_crossing(costs: Costs, bytes_per_token: int, num_tokens: int, *, chunk: int) -> float:
    """The bandwidth, in bytes a second, at which both modes cost the same for `num_tokens`; found by bisection.

    Args:
        costs: with the link as fast as it goes.
        chunk: tokens that a step takes.

    Raises:
        ValueError: even the unhindered link is too slow for that.
    """
    num_bytes = num_tokens * bytes_per_token
    recompute = costs.recompute(num_tokens, chunk=chunk).seconds
    if costs.save(num_bytes).seconds + costs.load(num_bytes).seconds >= recompute:
        raise ValueError(
            f"no bandwidth makes the modes cross at {num_tokens} tokens: computing takes {recompute * 1e3:.1f} ms, and "
            "swapping takes longer on the link as it is"
        )
    slow, fast = num_bytes / recompute, 2 * num_bytes / recompute  # one way alone takes as long; both together do
    while _swap(RateLimitedCosts(costs, fast), num_bytes) > recompute:
        fast *= 2
    for _ in range(_BISECTIONS):
        middle = (slow + fast) / 2
        if _swap(RateLimitedCosts(costs, middle), num_bytes) > recompute:
            slow = middle
        else:
            fast = middle
    return fast


@dataclass(frozen=True, slots=True)
class CrossingRange:
    """Between `slowest` and `fastest`, in bytes a second, there is a crossing point; outside, one mode always wins."""

    slowest: float  #: by a slower link nothing is ever swapped
    slowest_at: int  #: tokens of the first length that is swapped as a link becomes faster
    fastest: float  #: by a faster link everything is swapped
    fastest_at: int  #: tokens of the first length that is computed as a link becomes slower


def crossing_range(costs: Costs, bytes_per_token: int, lengths: Sequence[int], *, chunk: int) -> CrossingRange:
    """For which bandwidths of a link, the same both ways and without a latency, one of these lengths is a crossing."""
    even = {n: 2 * n * bytes_per_token / costs.recompute(n, chunk=chunk).seconds for n in lengths}
    slowest_at, fastest_at = min(even, key=even.__getitem__), max(even, key=even.__getitem__)
    return CrossingRange(even[slowest_at], slowest_at, even[fastest_at], fastest_at)


def _swap(costs: Costs, num_bytes: int) -> float:
    return costs.save(num_bytes).seconds + costs.load(num_bytes).seconds
