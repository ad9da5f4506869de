"""Owners take turns, and none can take every place."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

import pytest

from quire.system.fair_thread import FairThread, TooManyJobs


def test_an_owner_of_many_jobs_keeps_nobody_waiting_for_all_of_them() -> None:
    thread: FairThread[None] = FairThread("turns", 16)
    has_begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []
    thread.submit("first", lambda: (has_begun.set(), may_end.wait())[0])
    has_begun.wait()

    def fill(owner: str) -> list[Future[None]]:
        """All places that the owner may have."""
        futures: list[Future[None]] = []
        with suppress(TooManyJobs):
            while True:
                futures.append(thread.submit(owner, partial(done.append, f"{owner}{len(futures)}")))
        return futures

    many, fewer, few = fill("a"), fill("b"), fill("c")
    assert (len(many), len(fewer), len(few)) == (8, 4, 2), "half of what is left"
    few[1].cancel()
    last = thread.submit("c", partial(done.append, "c2"))
    with pytest.raises(TooManyJobs):
        thread.submit("c", partial(done.append, "c3"))
    may_end.set()
    wait([*many, *fewer, last])
    assert done == ["a0", "b0", "c0", "a1", "b1", "c2", "a2", "b2", "a3", "b3", "a4", "a5", "a6", "a7"]
    with pytest.raises(ValueError, match="bad"):
        thread.submit("a", partial(int, "bad")).result()  # type: ignore[arg-type]
    thread.close()


def test_nothing_is_kept_of_jobs_that_were_cancelled_while_they_waited() -> None:
    thread: FairThread[None] = FairThread("turns", 4)
    may_end = threading.Event()
    first = thread.submit("a", lambda: may_end.wait() and None)
    for _ in range(9):
        job = Job()
        thread.submit("b", job).cancel()
        kept = weakref.ref(job)
        del job
        assert kept() is None, "though its turn has not come"
    last = thread.submit("b", Job())
    may_end.set()
    wait([first, last])
    thread.close()
    with pytest.raises(RuntimeError, match="closed"):
        thread.submit("a", Job())


class Job:
    def __call__(self) -> None:
        pass


def test_what_waits_when_it_is_closed_is_cancelled() -> None:
    thread: FairThread[None] = FairThread("turns", 16)
    has_begun, may_end = threading.Event(), threading.Event()
    running = thread.submit("a", lambda: (has_begun.set(), may_end.wait())[0])
    waiting = [thread.submit("a", lambda: None) for _ in range(3)]
    has_begun.wait()
    thread.close()
    may_end.set()
    assert running.result() is None
    assert all(future.cancelled() for future in waiting)
