"""Arrivals have the requested rate and burstiness, and recordings keep their shape at any rate."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.serving.arrivals import OpenLoop, draw_arrivals, pace, scale_trace
from quire.bench.workload import Lengths, Workload, WorkloadRequest


def make(count: int) -> Workload:
    return Workload("W", [WorkloadRequest([i], 1) for i in range(count)])


def gaps(arrivals: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise([0.0, *arrivals])]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_the_spread_of_their_distribution(burstiness: float) -> None:
    found = gaps(draw_arrivals(5.0, count=40_000, duration_s=None, burstiness=burstiness))
    mean = statistics.mean(found)
    assert mean == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(found) / mean == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)


def mean_rate(arrivals: list[float]) -> float:
    return (len(arrivals) - 1) / (max(arrivals) - min(arrivals))


def test_a_poisson_process_has_as_many_arrivals_as_it_should_within_a_duration() -> None:
    arrivals = draw_arrivals(10.0, count=None, duration_s=1_000)
    assert len(arrivals) == pytest.approx(10_000, rel=0.05)
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] <= 1_000


@given(st.floats(0.1, 100), st.integers(1, 50), st.integers(0, 5))
def test_the_same_seed_gives_the_same_arrivals(rate: float, count: int, seed: int) -> None:
    first = draw_arrivals(rate, count=count, duration_s=None, seed=seed)
    assert first == draw_arrivals(rate, count=count, duration_s=None, seed=seed)
    assert first != draw_arrivals(rate, count=count, duration_s=None, seed=seed + 1)
    assert len(first) == count


def test_whichever_of_count_and_duration_comes_first_ends_it() -> None:
    assert len(draw_arrivals(1.0, count=5, duration_s=1e6)) == 5
    assert all(arrival <= 3 for arrival in draw_arrivals(10.0, count=1_000, duration_s=3))


def test_an_infinite_rate_lets_all_come_at_once() -> None:
    assert draw_arrivals(math.inf, count=3, duration_s=None) == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="--num-requests"):
        draw_arrivals(math.inf, count=None, duration_s=3)


def test_something_must_bound_a_load() -> None:
    with pytest.raises(ValueError, match="a duration or a number"):
        draw_arrivals(1, count=None, duration_s=None)


def test_a_drawn_load_has_one_request_an_arrival() -> None:
    workload = OpenLoop(make, count=20, seed=3).at(4.0)
    assert [request.arrival_s for request in workload.requests] == draw_arrivals(4.0, count=20, duration_s=None, seed=3)
    with pytest.raises(ValueError, match="--request-rate or --sweep"):
        OpenLoop(make, count=20).at(None)
    with pytest.raises(ValueError, match="no request arrives"):
        OpenLoop(make, duration_s=1e-6).at(0.1)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=20), st.floats(0.1, 50))
def test_another_rate_keeps_the_shape_of_a_recording(steps: list[float], rate: float) -> None:
    arrivals = [sum(steps[:i]) for i in range(len(steps) + 1)]
    paced = pace(arrivals, rate)
    assert mean_rate(paced) == pytest.approx(rate)
    factor = mean_rate(arrivals) / rate
    assert paced == pytest.approx([arrival * factor for arrival in arrivals])


def recorded(*arrivals: float, duration_s: float | None = None) -> OpenLoop:
    return OpenLoop(make, arrivals, duration_s=duration_s)


def test_a_recorded_load_keeps_its_times_unless_it_is_asked_for_a_rate() -> None:
    load = recorded(0.0, 2.0, 6.0)
    assert [(r.prompt_token_ids[0], r.arrival_s) for r in load.at(None).requests] == [(0, 0.0), (1, 2.0), (2, 6.0)]
    assert [r.arrival_s for r in load.at(1.0).requests] == pytest.approx([0.0, 2 / 3, 2.0])
    assert [r.arrival_s for r in load.at(math.inf).requests] == [0.0, 0.0, 0.0]


def test_a_duration_leaves_out_what_would_come_later_at_that_rate() -> None:
    times = [float(i) for i in range(10)]
    assert len(recorded(*times, duration_s=4.0).at(None).requests) == 5
    assert len(recorded(*times, duration_s=4.0).at(2.0).requests) == 8
    with pytest.raises(ValueError, match="no request arrives within 1 s"):
        recorded(3.0, 4.0, duration_s=1).at(None)


def test_within_a_duration_the_played_part_has_the_rate_that_was_asked_for() -> None:
    slow_then_fast = [0.0, 10.0, 20.0, 30.0, *(30 + 0.1 * i for i in range(1, 100))]
    for rate in (0.5, 1.0, 2.0):
        played = [request.arrival_s for request in recorded(*slow_then_fast, duration_s=8.0).at(rate).requests]
        assert len(played) == 8 * rate
        assert mean_rate(played) == pytest.approx(rate)


def test_a_single_request_comes_at_once_at_any_rate() -> None:
    assert [request.arrival_s for request in recorded(5.0).at(2.0).requests] == [0.0]


def test_a_recording_without_times_has_no_rate_to_change() -> None:
    with pytest.raises(ValueError, match="all come at once"):
        recorded(0.0, 0.0, 0.0).at(2.0)


def test_a_trace_is_scaled_and_then_capped_and_never_to_nothing() -> None:
    lengths = Lengths([1, 100, 1_000], [2, 50, 400], [0.0, 1.0, 5.0])
    scaled = scale_trace(lengths, time_scale=0.5, length_scale=0.25, max_input_len=100, max_output_len=50)
    assert scaled == Lengths([1, 25, 100], [1, 12, 50], [0.0, 0.5, 2.5])
    assert scale_trace(lengths) == lengths
