"""Percentiles, gaps and intervals match hand calculations and numpy."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.simulate.token_times import (
    Timeline,
    distribution,
    interval,
    paired_changes,
    t95,
)

STEPS = st.lists(st.tuples(st.lists(st.integers(0, 5), unique=True), st.integers(1, 9)), max_size=30)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_statistics_are_numpys(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    expected = [len(values), np.mean(values), *np.percentile(values, (50, 99)), max(values)]
    np.testing.assert_allclose([found.count, found.mean, found.p50, found.p99, found.largest], expected, rtol=1e-9)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1))
def test_a_value_with_a_weight_counts_as_often_as_it_says(values: list[tuple[int, int]]) -> None:
    spread = [float(value) for value, weight in values for _ in range(weight)]
    weighted = distribution([float(value) for value, _ in values], [weight for _, weight in values])
    expected = distribution(spread)
    assert weighted is not None
    assert expected is not None
    assert (weighted.count, weighted.p50, weighted.p99) == (expected.count, expected.p50, expected.p99)
    assert weighted.mean == pytest.approx(expected.mean)


def test_nothing_has_no_distribution() -> None:
    assert distribution([]) is None
    assert Timeline().gaps() is None


@settings(deadline=None)
@given(STEPS)
def test_a_timeline_equals_a_record_of_every_token(steps: list[tuple[list[int], int]]) -> None:
    timeline = Timeline()
    times: dict[int, list[int]] = {}
    now = 0
    for seq_ids, took in steps:
        now += took
        timeline.record(list(seq_ids), float(now))
        for seq_id in seq_ids:
            times.setdefault(seq_id, []).append(now)
    timeline.record([], float(now))
    gaps = [float(b - a) for each in times.values() for a, b in pairwise(each)]
    assert timeline.first == {seq_id: each[0] for seq_id, each in times.items()}
    assert {seq_id: timeline.last(seq_id) for seq_id in times} == {seq_id: each[-1] for seq_id, each in times.items()}
    found, expected = timeline.gaps(), distribution(gaps)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (found.count, found.p50, found.p99) == (expected.count, expected.p50, expected.p99)


@pytest.mark.parametrize(("df", "t"), [(1, 12.7062), (19, 2.0930), (21, 2.0796), (30, 2.0423), (60, 2.0003)])
def test_students_t_is_the_tables(df: int, t: float) -> None:
    assert t95(df) == pytest.approx(t, abs=4e-4)


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.high == pytest.approx(2 + 4.3027 / math.sqrt(3))
    assert interval([7.0]).low is None


def test_a_change_is_taken_pair_by_pair() -> None:
    assert paired_changes([11.0, 22.0], [10.0, 20.0]) == pytest.approx([0.1, 0.1])
    assert paired_changes([11.0], [10.0, 20.0]) == []
    assert paired_changes([11.0], [0.0]) == []
