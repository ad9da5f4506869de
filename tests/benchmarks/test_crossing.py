"""Crossing points of recovery modes as a function of the link's bandwidth."""

from __future__ import annotations

import pytest

from benchmarks.recovery.crossing import bandwidth_for_crossing, crossings_at
from quire.bench.calibrate import crossing_range
from quire.core.decisions.fits import PiecewiseLinear
from quire.simulate.table_costs import DecodeCosts, TableCosts

BYTES = 1000
LENGTHS = range(16, 2049, 16)


def machine(*, latency: float = 0.0) -> TableCosts:
    """A fast link, and prefill with a fixed cost that grows faster than its tokens."""
    recompute = [(n, 0.01 + 1e-4 * n + 2e-7 * n * n) for n in range(0, 2049, 64)]
    link = [(0, latency), (2048, latency + 1e-4)]
    return TableCosts(link, link, recompute, BYTES, DecodeCosts(0.01, 0.0, 0.0))


@pytest.mark.parametrize("num_tokens", [512, 1024, 1600])
def test_a_bandwidth_is_found_by_which_the_roads_cross_where_they_are_to(num_tokens: int) -> None:
    costs = machine()
    bandwidth = bandwidth_for_crossing(costs, BYTES, num_tokens, chunk=4096)
    recompute_s = costs.recompute(num_tokens, chunk=4096)
    assert 2 * num_tokens * BYTES / bandwidth == pytest.approx(recompute_s, rel=1e-6)
    points = crossings_at(bandwidth, costs, BYTES, LENGTHS, chunk=4096)
    assert any(abs(point - num_tokens) <= 16 for point in points)


def test_no_bandwidth_helps_where_the_link_itself_is_too_slow() -> None:
    with pytest.raises(ValueError, match="no bandwidth makes the modes cross at 512 tokens"):
        bandwidth_for_crossing(machine(latency=1.0), BYTES, 512, chunk=4096)


def test_between_two_bandwidths_there_is_a_crossing_point_and_outside_there_is_none() -> None:
    costs = machine()
    (slowest, _), (fastest, _) = crossing_range(costs, BYTES, LENGTHS, chunk=4096)
    assert slowest < fastest
    for bandwidth, crosses in (
        (slowest * 0.99, False),
        (slowest * 1.02, True),
        (fastest * 0.98, True),
        (fastest * 1.01, False),
    ):
        points = crossings_at(bandwidth, costs, BYTES, LENGTHS, chunk=4096)
        assert bool(points) == crosses, bandwidth


def test_a_way_that_is_slow_by_itself_leaves_the_rest_of_the_time_to_the_other() -> None:
    costs = machine()
    costs._swap_out = PiecewiseLinear([(0, 0.1), (2048, 0.1)])
    recompute_s = costs.recompute(1024, chunk=4096)
    assert recompute_s > 0.1
    bandwidth = bandwidth_for_crossing(costs, BYTES, 1024, chunk=4096)
    paced_s = [max(own, 1024 * BYTES / bandwidth) for own in (0.1, costs.load(1024 * BYTES))]
    assert sum(paced_s) == pytest.approx(recompute_s)
