"""A limited link keeps its bandwidth on average, whatever the clock does."""

from __future__ import annotations

import random

import pytest

from quire.tiers.pacing import RateLimiter


class Clock:
    """A clock that advances by `wait`, which may return late, and by the test."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now = 100.0
        self.late_s = late_s
        self.random = random.Random(0)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds + self.random.random() * self.late_s


def test_a_transfer_takes_as_long_as_its_bytes_need() -> None:
    clock = Clock()
    RateLimiter(1000, clock, clock.wait).hold(2500, asked_at=clock.now, took_s=0.0)
    assert clock.now == pytest.approx(102.5)


@pytest.mark.parametrize("late_s", [0.0, 0.01, 0.3])
def test_transfers_that_wait_for_each_other_have_the_bandwidth_on_average(late_s: float) -> None:
    clock = Clock(late_s)
    rate_limiter = RateLimiter(1e6, clock, clock.wait)
    sizes = [clock.random.randint(1, 200_000) for _ in range(500)]
    for num_bytes in sizes:
        clock.now += 0.001  # the copy itself
        rate_limiter.hold(num_bytes, asked_at=100.0, took_s=0.001)
    assert 100 + sum(sizes) / 1e6 <= clock.now <= 100 + sum(sizes) / 1e6 + 2 * late_s + 0.01


def test_what_a_transfer_took_is_the_devices_time_however_late_its_thread_was_woken() -> None:
    clock = Clock(late_s=0.3)
    rate_limiter = RateLimiter(1000, clock, clock.wait)
    took = [rate_limiter.hold(500, asked_at=100.0, took_s=0.0) for _ in range(20)]
    assert took == pytest.approx([0.5] * 20)
    assert rate_limiter.hold(500, asked_at=clock.now, took_s=2.0) == pytest.approx(2.0), "no faster than it really went"
    rate_limiter.bandwidth = None
    assert rate_limiter.hold(500, asked_at=clock.now, took_s=0.25) == pytest.approx(0.25)


def test_time_without_transfers_is_not_saved_up() -> None:
    clock = Clock()
    rate_limiter = RateLimiter(1000, clock, clock.wait)
    for _ in range(10):
        clock.now += 60
        asked_at = clock.now
        rate_limiter.hold(500, asked_at, took_s=0.0)
        assert clock.now == pytest.approx(asked_at + 0.5)


def test_a_device_that_is_slower_than_the_bandwidth_is_not_held_back_nor_makes_up_for_it_later() -> None:
    clock = Clock()
    rate_limiter = RateLimiter(1000, clock, clock.wait)
    for _ in range(5):
        clock.now += 3
        rate_limiter.hold(1000, asked_at=100.0, took_s=3.0)
    assert clock.now == pytest.approx(115)
    rate_limiter.hold(1000, asked_at=100.0, took_s=0.0)
    assert clock.now == pytest.approx(116)


def test_another_bandwidth_holds_from_the_middle_of_a_transfer_on() -> None:
    clock = Clock()
    rate_limiter = RateLimiter(1000, clock, lambda seconds: None)

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        if clock.now >= 110:
            rate_limiter.bandwidth = 10_000
        if clock.now >= 111:
            rate_limiter.bandwidth = None

    rate_limiter = RateLimiter(1000, clock, wait)
    rate_limiter.hold(1_000_000, asked_at=100.0, took_s=0.0)
    assert clock.now == pytest.approx(111, abs=0.06)


def test_without_a_bandwidth_nothing_waits() -> None:
    clock = Clock()
    RateLimiter(None, clock, clock.wait).hold(1 << 40, asked_at=0.0, took_s=0.5)
    assert clock.now == 100


def test_a_wait_that_is_given_up_ends_it() -> None:
    clock = Clock()
    RateLimiter(1, clock, lambda seconds: True).hold(1 << 40, asked_at=100.0, took_s=0.0)
    assert clock.now == 100
