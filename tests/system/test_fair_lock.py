"""Engines that share a device get equal shares of its time, whatever their steps take."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_engine.harness import finish, greedy, idle, make, run
from engines import thread_engine
from quire.system.fair_lock import FairLock


class Clock:
    """A clock that shows the time set by a test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Worker:
    """An engine in a thread, with steps of chosen duration."""

    device: FairLock
    clock: Clock
    step_s: float
    log: list[str]
    name: str
    num_steps: int
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.share = self.device.add_user()
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        self.share.enter()
        for _ in range(self.num_steps):
            with self.share:
                self.log.append(self.name)
                self.clock.now += self.step_s
        self.share.leave()


def race(steps: dict[str, tuple[float, int]]) -> list[str]:
    """Return the owner of each step; all have work from the first step on."""
    clock = Clock()
    device = FairLock(clock, grace_s=1e9)
    log: list[str] = []
    workers = [Worker(device, clock, step_s, log, name, count) for name, (step_s, count) in steps.items()]
    for worker in workers:
        worker.share.enter()
    for worker in workers:
        worker.thread.start()
    for worker in workers:
        worker.thread.join()
    return log


def test_equal_steps_alternate() -> None:
    log = race({"a": (1.0, 10), "b": (1.0, 10)})
    for at in range(0, 20, 2):
        assert set(log[at : at + 2]) == {"a", "b"}


def test_long_steps_and_short_ones_get_the_same_time() -> None:
    log = race({"long": (1.0, 5), "short": (0.125, 40)})
    for start in range(5):
        until_long = log.index("long", [i for i, name in enumerate(log) if name == "long"][start])
        used_long = log[: until_long + 1].count("long") * 1.0
        used_short = log[: until_long + 1].count("short") * 0.125
        assert abs(used_long - used_short) <= 1.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.125, 0.25, 0.5, 1.0, 4.0]), min_size=2, max_size=4))
def test_while_all_have_work_no_two_differ_by_more_than_a_step(lengths: list[float]) -> None:
    steps = {str(i): (length, int(8 / length)) for i, length in enumerate(lengths)}
    log = race(steps)
    used = dict.fromkeys(steps, 0.0)
    for name in log:
        used[name] += steps[name][0]
        if min(used.values()) < 8 - max(lengths):
            assert max(used.values()) - min(used.values()) <= max(lengths)


def take(share: object, clock: Clock, seconds: float) -> None:
    with share:  # type: ignore[attr-defined]
        clock.now += seconds


def test_who_comes_back_from_idling_has_no_credit_for_it() -> None:
    clock = Clock()
    device = FairLock(clock)
    busy, idler = device.add_user(), device.add_user()
    idler.enter()
    take(idler, clock, 1)
    idler.leave()
    busy.enter()
    for _ in range(100):
        take(busy, clock, 1)
    idler.enter()
    assert idler.used_s == busy.used_s


def test_who_comes_back_from_idling_does_not_pay_for_what_it_used_before() -> None:
    clock = Clock()
    device = FairLock(clock)
    early, late = device.add_user(), device.add_user()
    early.enter()
    for _ in range(100):
        take(early, clock, 1)
    early.leave()
    late.enter()
    take(late, clock, 1)
    early.enter()
    assert abs(early.used_s - late.used_s) <= 1


def test_one_that_does_not_come_for_its_turn_holds_nobody_up() -> None:
    device = FairLock(grace_s=0.01)
    absent, present = device.add_user(), device.add_user()
    absent.enter()
    present.enter()
    present.used_s = 5.0
    with present:
        pass


def test_a_turn_is_given_back_by_an_error_too() -> None:
    device = FairLock()
    first, second = device.add_user(), device.add_user()
    with pytest.raises(ZeroDivisionError), first:
        raise ZeroDivisionError
    with second:
        pass


def test_two_models_on_one_device_are_served_side_by_side() -> None:
    turns = count()  # the clock advances once when a turn begins and once when it ends: all take equal time
    device = FairLock(lambda: next(turns), grace_s=1e9)
    log: list[str] = []
    engines = [
        thread_engine(name, make, device=device, on_stats=lambda _, name=name: log.append(name))  # type: ignore[misc]
        for name in ("a", "b")
    ]

    async def scene() -> None:
        for engine in engines:
            engine.start()
        for engine in engines:
            await engine.wait_ready()
        outputs = await asyncio.gather(
            *(finish(engine, [n + 1], greedy(60), request_id=str(n)) for engine in engines for n in range(3))
        )
        assert outputs[0].outputs == outputs[3].outputs
        for engine in engines:
            await idle(engine)
            engine.shutdown()

    run(scene())
    first_done = min(len(log) - log[::-1].index(name) for name in "ab")
    together = log[max(log.index("a"), log.index("b")) : first_done]
    changes = sum(x != y for x, y in pairwise(together))
    assert changes > len(together) / 2, "their steps interleave"
