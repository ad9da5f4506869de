"""Owners are served round-robin, and none can take every place."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

import pytest

from quire.system.fair_executor import FairExecutor, TooManyJobs


def test_an_owner_of_many_jobs_keeps_nobody_waiting_for_all_of_them() -> None:
    executor = FairExecutor("tests", max_jobs=16)
    has_begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []
    executor.submit(lambda: (has_begun.set(), may_end.wait())[0], "first")
    has_begun.wait()

    def fill(owner: str) -> list[Future[None]]:
        """Take all places that the owner may have."""
        futures: list[Future[None]] = []
        with suppress(TooManyJobs):
            while True:
                futures.append(executor.submit(partial(done.append, f"{owner}{len(futures)}"), owner))
        return futures

    many, fewer, few = fill("a"), fill("b"), fill("c")
    assert (len(many), len(fewer), len(few)) == (8, 4, 2), "half of what is left"
    few[1].cancel()
    last = executor.submit(partial(done.append, "c2"), "c")
    with pytest.raises(TooManyJobs):
        executor.submit(partial(done.append, "c3"), "c")
    may_end.set()
    wait([*many, *fewer, last])
    assert done == ["a0", "b0", "c0", "a1", "b1", "c2", "a2", "b2", "a3", "b3", "a4", "a5", "a6", "a7"]
    with pytest.raises(ValueError, match="bad"):
        executor.submit(partial(int, "bad"), "a").result()  # type: ignore[arg-type]
    executor.close()


def test_nothing_is_kept_of_jobs_that_were_cancelled_while_they_waited() -> None:
    executor = FairExecutor("tests", max_jobs=4)
    may_end = threading.Event()
    first = executor.submit(lambda: may_end.wait() and None, "a")
    for _ in range(9):
        job = Job()
        executor.submit(job, "b").cancel()
        kept = weakref.ref(job)
        del job
        assert kept() is None, "though its turn has not come"
    last = executor.submit(Job(), "b")
    may_end.set()
    wait([first, last])
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(Job(), "a")


class Job:
    def __call__(self) -> None:
        pass


def test_what_waits_when_it_is_closed_is_cancelled() -> None:
    executor = FairExecutor("tests", max_jobs=16)
    has_begun, may_end = threading.Event(), threading.Event()
    running = executor.submit(lambda: (has_begun.set(), may_end.wait())[0], "a")
    waiting = [executor.submit(lambda: None, "a") for _ in range(3)]
    has_begun.wait()
    executor.close()
    may_end.set()
    assert running.result() is None
    assert all(future.cancelled() for future in waiting)


def test_urgent_jobs_run_first_and_others_in_their_order() -> None:
    executor = FairExecutor("tests")
    may_end, order = threading.Event(), list[str]()
    jobs = [executor.submit(lambda: may_end.wait() and None)]
    jobs += [executor.submit(partial(order.append, name), is_urgent=name == "urgent") for name in ("a", "b", "urgent")]
    may_end.set()
    wait(jobs)
    assert order == ["urgent", "a", "b"]
    executor.close()


def test_several_threads_take_jobs_at_once() -> None:
    executor, together = FairExecutor("tests", num_threads=3), threading.Barrier(3)
    wait([executor.submit(lambda: together.wait(60) and None) for _ in range(3)])
    executor.close()


def test_an_owner_leaves_threads_to_others() -> None:
    executor = FairExecutor("tests", num_threads=3, max_running=1)
    may_end, running = threading.Event(), threading.Semaphore(0)

    def work(owner: str) -> str:
        running.release()
        may_end.wait()
        return owner

    many = [executor.submit(partial(work, "many"), "many") for _ in range(5)]
    executor.submit(int, is_urgent=True).result()
    assert executor.submit(int, "other").result() == 0, "while the first job of many runs"
    assert running.acquire(timeout=60)
    assert not running.acquire(blocking=False), "many runs one job only"
    may_end.set()
    assert {future.result() for future in many} == {"many"}
    executor.close()
