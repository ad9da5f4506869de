"""Blocks of a preempted request that are evicted before it resumes: the forecast, and the learned share of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.decisions.evictions import EvictionStats, forecast_evictions
from quire.core.request import EndRules, Request, Sequence
from quire.sampling_params import SamplingParams


def sequence(num_tokens: int, num_left: int) -> Sequence:
    """A running sequence of blocks of 16, whose last block is half full on average."""
    request = Request("r", [1], SamplingParams(), ends=EndRules(num_tokens + num_left - 1))
    seq = Sequence(0, 0, request, [1] * num_tokens)
    seq.block_table = list(range(num_tokens // 16 + num_tokens % 2))
    return seq


def test_others_take_blocks_until_one_of_them_ends_and_returns_as_many() -> None:
    first, *rest = [sequence(160, left) for left in (32, 1000, 2000)]
    assert forecast_evictions([*rest, first], 16) == pytest.approx(3 * (32 + 8) / 16)


def test_one_that_ends_with_few_blocks_is_not_enough() -> None:
    small, large = sequence(16, 64), sequence(1600, 80)
    others = [sequence(160, 5000) for _ in range(4)]
    assert forecast_evictions([small, large, *others], 16) == pytest.approx((64 + 5 * 80 + 6 * 8) / 16)


def test_a_forecast_is_at_least_a_block() -> None:
    assert forecast_evictions([], 16) == forecast_evictions([sequence(160, 0)], 16) == 1.0


def test_before_any_victim_has_resumed_the_forecast_counts() -> None:
    stats = EvictionStats()
    assert stats.expect(40, 12.4) == [12]
    assert stats.expect(7, 12.4) == [7]
    assert stats.expect(7, math.inf) == [7], "without prefix caching, all are lost"


def test_the_share_of_the_forecast_is_learned() -> None:
    stats = EvictionStats()
    stats.observe(20, 3, forecast=30.0)
    assert stats.expect(40, 30.0) == [3]
    assert stats.expect(40, 60.0) == [6], "where others take twice as many"
    assert stats.expect(2, 30.0) == [2]


def test_where_all_was_lost_more_might_have_been() -> None:
    stats = EvictionStats()
    stats.observe(5, 5, forecast=30.0)
    assert stats.expect(40, 30.0) == [30]
    stats.observe(50, 15, forecast=30.0)
    assert stats.expect(40, 30.0) == [15, 15], "at least 5 of the first, so that nothing contradicts the second"


def test_many_returns_become_a_few_equally_likely_cases() -> None:
    stats = EvictionStats()
    for lost in (8, 1, 7, 2, 6, 3, 5, 4):
        stats.observe(100, lost, forecast=10.0)
    assert stats.expect(100, 10.0) == [2, 4, 6, 8]  # 1.5, 3.5, 5.5 and 7.5, rounded to even
    assert stats.expect(4, 10.0) == [2, 4, 4, 4]


def test_old_returns_are_forgotten() -> None:
    stats = EvictionStats()
    stats.observe(10, 10, forecast=10.0)
    for _ in range(32):
        stats.observe(10, 1, forecast=10.0)
    assert stats.expect(10, 10.0) == [1, 1, 1, 1]


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.floats(1.0, 200.0)), max_size=40),
    st.integers(0, 60),
    st.floats(1.0, 200.0),
)
def test_expected_evictions_ascend_within_the_freed_blocks(
    seen: list[tuple[int, int, float]], num_freed: int, forecast: float
) -> None:
    stats = EvictionStats()
    for freed, lost, was_forecast in seen:
        stats.observe(freed, min(freed, lost), was_forecast)
    found = stats.expect(num_freed, forecast)
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= num_freed


def test_some_of_those_that_are_preempted_are_preempted_again() -> None:
    stats = EvictionStats()
    assert stats.again == 0.0, "nothing is expected of saves before it is seen"
    for at in range(60):
        stats.observe_preemption(is_repeated=at % 3 == 1)
    assert stats.again == pytest.approx(20 / 61)
