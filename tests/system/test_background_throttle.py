"""Background work gets its share of the time between steps, and never waits forever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from quire.system.background_throttle import BackgroundThrottle


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Background:
    """A thread that works in pieces of a duration on the test's clock, until stopped."""

    def __init__(self, throttle: BackgroundThrottle, clock: Clock, piece_s: float) -> None:
        self.num_pieces = 0
        self.is_stopped = False
        self.waits = threading.Event()
        self._throttle, self._clock, self._piece_s = throttle, clock, piece_s
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self.is_stopped:
            self.waits.set()
            self._throttle.acquire()
            self._clock.now += self._piece_s
            self.num_pieces += 1
        self._throttle.release()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        yield
        self.is_stopped = True
        self._throttle.close()
        self._thread.join()


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.0001)


def steps(throttle: BackgroundThrottle, clock: Clock, number: int, step_s: float) -> None:
    """Run steps, each beginning once the background waits."""
    for _ in range(number):
        until(lambda: throttle._is_waiting)
        clock.now += step_s
        throttle.end_step(goes_on=True)
        throttle.begin_step()


@pytest.mark.parametrize("piece_s", [0.001, 0.004, 0.05])
def test_steps_are_slowed_down_by_the_share_whatever_the_length_of_a_piece(piece_s: float) -> None:
    clock = Clock()
    throttle = BackgroundThrottle(0.1, clock, longest_wait_s=60, longest_turn_s=60)
    throttle.begin_step()
    background = Background(throttle, clock, piece_s)
    with background.running():
        steps(throttle, clock, 80, 0.02)
        share = background.num_pieces * piece_s / clock.now
        throttle.pause()
    assert share == pytest.approx(0.1, abs=0.02)


def test_a_turn_that_was_not_taken_is_lost_and_one_that_was_too_long_is_paid_back() -> None:
    clock = Clock()
    throttle = BackgroundThrottle(0.5, clock, longest_wait_s=60, longest_turn_s=60)
    throttle.begin_step()
    clock.now += 100.0
    throttle.end_step(goes_on=True)  # without waiting work
    throttle.begin_step()
    background = Background(throttle, clock, 5.0)
    with background.running():
        steps(throttle, clock, 1, 1.0)
        assert background.num_pieces == 1, "one second is owed, not a hundred and one"
        steps(throttle, clock, 3, 1.0)
        assert background.num_pieces == 1
        steps(throttle, clock, 2, 1.0)
        assert background.num_pieces == 2
        throttle.pause()


def test_nothing_waits_where_nobody_steps_or_nobody_gives_turns() -> None:
    idle = BackgroundThrottle(0.1, longest_wait_s=60)
    idle.acquire()
    idle.begin_step()
    idle.end_step(goes_on=False)
    idle.acquire()
    left = BackgroundThrottle(0.1, longest_wait_s=0.01)
    left.begin_step()  # and no later step
    left.acquire()


def test_a_step_goes_on_where_a_turn_comes_to_no_end() -> None:
    throttle = BackgroundThrottle(0.5, longest_wait_s=60, longest_turn_s=0.01)
    throttle.begin_step()
    stuck = threading.Event()

    def work() -> None:
        throttle.acquire()
        stuck.wait()

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: throttle._is_waiting)
    throttle.end_step(goes_on=True)
    stuck.set()
    thread.join()
