"""Learned shares of a victim's blocks that are evicted before it resumes."""

from __future__ import annotations

import pytest

from quire.core.decisions.load_or_compute import EvictionStats


def test_all_is_taken_for_lost_as_long_as_nothing_is_known() -> None:
    assert EvictionStats().expect(7) == [7]


def test_one_return_is_a_case() -> None:
    eviction_stats = EvictionStats()
    eviction_stats.observe(20, 3)
    assert eviction_stats.expect(40) == [3]
    assert eviction_stats.expect(2) == [2]


def test_where_all_were_gone_more_would_have_gone_too() -> None:
    eviction_stats = EvictionStats()
    eviction_stats.observe(5, 5)
    assert eviction_stats.expect(40) == [40]


def test_many_returns_become_a_few_equally_likely_cases() -> None:
    eviction_stats = EvictionStats()
    for lost in (8, 1, 7, 2, 6, 3, 5, 4):
        eviction_stats.observe(100, lost)
    assert eviction_stats.expect(100) == [2, 4, 6, 8]  # 1.5, 3.5, 5.5 and 7.5, rounded to even
    assert eviction_stats.expect(4) == [2, 4, 4, 4]


def test_old_returns_are_forgotten() -> None:
    eviction_stats = EvictionStats()
    eviction_stats.observe(10, 10)
    for _ in range(32):
        eviction_stats.observe(10, 1)
    assert eviction_stats.expect(10) == [1, 1, 1, 1]


def test_some_of_those_that_are_preempted_are_preempted_again() -> None:
    eviction_stats = EvictionStats()
    assert eviction_stats.again == 0.0, "nothing is expected of saves before it is seen"
    for at in range(60):
        eviction_stats.observe_preemption(is_repeated=at % 3 == 1)
    assert eviction_stats.again == pytest.approx(20 / 61)
