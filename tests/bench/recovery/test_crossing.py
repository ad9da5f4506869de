"""Where modes cross, as a function of the link's bandwidth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from quire.bench.recovery.crossing import RateLimitedCosts, bandwidth_for_crossing, crossing_range
from quire.core.costs.interface import find_crossings
from quire.simulate.table_costs import DecodeCosts, TableCosts

BYTES = 1000
LENGTHS = range(16, 2049, 16)


def machine(*, latency: float = 0.0) -> TableCosts:
    """A fast link, and prefill that has a fixed cost and grows faster than its tokens."""
    recompute = [(n, 0.01 + 1e-4 * n + 2e-7 * n * n) for n in range(0, 2049, 64)]
    link = [(0, latency), (2048, latency + 1e-4)]
    return TableCosts(link, link, recompute, BYTES, DecodeCosts(0.01, 0.0, 0.0))


@pytest.mark.parametrize("num_tokens", [512, 1024, 1600])
def test_a_bandwidth_is_found_by_which_the_roads_cross_where_they_are_to(num_tokens: int) -> None:
    costs = machine()
    bandwidth = bandwidth_for_crossing(costs, BYTES, num_tokens, chunk=4096)
    paced = RateLimitedCosts(costs, bandwidth)
    swap = paced.save(num_tokens * BYTES).seconds + paced.load(num_tokens * BYTES).seconds
    assert swap == pytest.approx(costs.recompute(num_tokens, chunk=4096).seconds, rel=1e-6)
    points = find_crossings(paced, BYTES, 2048)
    assert any(abs(point - num_tokens) <= 16 for point in points)


def test_no_bandwidth_helps_where_the_link_itself_is_too_slow() -> None:
    with pytest.raises(ValueError, match="no bandwidth makes the modes cross at 512 tokens"):
        bandwidth_for_crossing(machine(latency=1.0), BYTES, 512, chunk=4096)


def test_between_two_bandwidths_there_is_a_crossing_point_and_outside_there_is_none() -> None:
    costs = machine()
    found = crossing_range(costs, BYTES, LENGTHS, chunk=4096)
    assert found.slowest < found.fastest
    for bandwidth, crosses in (
        (found.slowest * 0.99, False),
        (found.slowest * 1.02, True),
        (found.fastest * 0.98, True),
        (found.fastest * 1.01, False),
    ):
        points = find_crossings(RateLimitedCosts(costs, bandwidth), BYTES, 2048, chunk=4096)
        assert bool(points) == crosses, bandwidth


def test_a_paced_link_is_never_faster_than_its_own() -> None:
    costs = machine(latency=0.5)
    paced = RateLimitedCosts(costs, 1e3)
    assert paced.load(100) == costs.load(100)
    assert paced.load(10_000).seconds == 10.0
    seconds = [paced.save(n).seconds for n in range(0, 5000, 100)]
    assert all(a <= b for a, b in pairwise(seconds))
