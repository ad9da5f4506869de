"""What of a victim's blocks is gone when it comes back: learnt from those that did."""

from __future__ import annotations

import pytest

from quire.core.recovery.eviction_stats import Survival


def test_all_is_taken_for_lost_as_long_as_nothing_is_known() -> None:
    assert Survival().expect(7) == [7]


def test_one_return_is_a_case() -> None:
    survival = Survival()
    survival.observe(20, 3)
    assert survival.expect(40) == [3]
    assert survival.expect(2) == [2]


def test_where_all_were_gone_more_would_have_gone_too() -> None:
    survival = Survival()
    survival.observe(5, 5)
    assert survival.expect(40) == [40]


def test_many_returns_become_a_few_equally_likely_cases() -> None:
    survival = Survival()
    for lost in (8, 1, 7, 2, 6, 3, 5, 4):
        survival.observe(100, lost)
    assert survival.expect(100) == [2, 4, 6, 8]  # 1.5, 3.5, 5.5 and 7.5, rounded to even
    assert survival.expect(4) == [2, 4, 4, 4]


def test_old_returns_are_forgotten() -> None:
    survival = Survival()
    survival.observe(10, 10)
    for _ in range(32):
        survival.observe(10, 1)
    assert survival.expect(10) == [1, 1, 1, 1]


def test_some_of_those_that_are_preempted_are_preempted_again() -> None:
    survival = Survival()
    assert survival.again == 0.5, "as likely as not"
    for at in range(60):
        survival.observe_preemption(is_repeated=at % 3 == 1)
    assert survival.again == pytest.approx(21 / 62)
