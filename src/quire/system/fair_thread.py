"""A thread that works for several owners in turns: whoever asks for much keeps nobody else waiting for all of it.

An owner may have as many jobs open as there are places left (dynamic thresholds: Choudhury and Hahne, 1998). So one
that is alone gets half of them, and there is always a place for a newcomer.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class TooManyJobs(RuntimeError):
    """An owner has as many jobs open as it may."""


class FairThread(Generic[T]):
    """Any thread may ask it.

    Args:
        name: of the thread.
        most: places for jobs, whoever they are of.
    """

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most = most
        self._lock = threading.Lock()  # over what stands below
        self._num_open: Counter[str] = Counter()  # jobs that have not ended, by owner
        self._queues: dict[str, deque[tuple[Future[T], Callable[[], T]]]] = {}  # by owner, whose turn it is first

    def submit(self, owner: str, job: Callable[[], T]) -> Future[T]:
        """What becomes of a job. A future that is cancelled before its job has begun gives its place back.

        Raises:
            TooManyJobs: it is not taken.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._num_open[owner] >= self._most - self._num_open.total():
                raise TooManyJobs(f"{self._num_open[owner]} wait already")
            self._pool.submit(self._run_next)
            self._num_open[owner] += 1
            self._queues.setdefault(owner, deque()).append((future, job))
        future.add_done_callback(lambda _: self._give_back(owner))
        return future

    def add(self, job: Callable[[], Any]) -> None:
        """Do this, too, which nobody waits for and which takes no place."""
        self._pool.submit(job)

    def close(self) -> None:
        """Begin no further job: their futures are cancelled. What runs goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            left = [future for queue in self._queues.values() for future, _ in queue]
            self._queues.clear()
        for future in left:
            future.cancel()

    def _run_next(self) -> None:
        with self._lock:
            if not self._queues:  # it was closed
                return
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            future, job = queue.popleft()
            if queue:
                self._queues[owner] = queue
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)

    def _give_back(self, owner: str) -> None:
        with self._lock:
            self._num_open[owner] -= 1
            if not self._num_open[owner]:
                del self._num_open[owner]
