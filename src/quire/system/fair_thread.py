"""A thread that works for several owners in turns: whoever asks for much keeps nobody else waiting for all of it.

Where there is an end to places, an owner may have as many jobs open as are left (dynamic thresholds: Choudhury and
Hahne, 1998). So one that is alone gets half of them, and there is always a place for a newcomer.
"""

from __future__ import annotations

import threading
from collections import Counter
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
        most: places for jobs, whoever they are of; None is without limit.
    """

    def __init__(self, name: str, most: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most = most
        self._lock = threading.Lock()  # over what stands below
        self._num_open: Counter[str] = Counter()  # jobs that have not ended, by owner
        self._queues: dict[str, dict[Future[T], Callable[[], T]]] = {}  # by owner, whose turn it is first
        self._is_going = False  # the pool is at a job, or about to take one
        self._is_closed = False

    def submit(self, owner: str, job: Callable[[], T]) -> Future[T]:
        """What becomes of a job. A future that is cancelled before its job has begun gives its place back at once.

        Raises:
            TooManyJobs: it is not taken.
            RuntimeError: the thread was closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("nothing is taken any more: it was closed")
            if self._most is not None and self._num_open[owner] >= self._most - self._num_open.total():
                raise TooManyJobs(f"{self._num_open[owner]} wait already")
            self._num_open[owner] += 1
            self._queues.setdefault(owner, {})[future] = job
            self._go_on()
        future.add_done_callback(lambda future: self._give_back(owner, future))
        return future

    def add(self, job: Callable[[], Any]) -> None:
        """Do this, too, before the next job; nobody waits for it, and it takes no place."""
        self._pool.submit(job)

    def close(self) -> None:
        """Begin no further job: their futures are cancelled. What runs goes on."""
        with self._lock:
            self._is_closed = True
            left = [future for queue in self._queues.values() for future in queue]
            self._queues.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for future in left:
            future.cancel()

    def _go_on(self) -> None:
        """Have the pool take the next job, if there is one and it does not already. Under the lock."""
        if self._queues and not self._is_going:
            self._is_going = True
            self._pool.submit(self._run_next)

    def _run_next(self) -> None:
        try:
            with self._lock:
                if not self._queues:  # it was closed, or those who waited have gone
                    return
                owner = next(iter(self._queues))
                queue = self._queues.pop(owner)
                future, job = next(iter(queue.items()))
                del queue[future]
                if queue:
                    self._queues[owner] = queue
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
        finally:
            with self._lock:
                self._is_going = False
                self._go_on()

    def _give_back(self, owner: str, future: Future[T]) -> None:
        with self._lock:
            self._num_open[owner] -= 1
            if not self._num_open[owner]:
                del self._num_open[owner]
            queue = self._queues.get(owner, {})
            if queue.pop(future, None) is not None and not queue:  # it was cancelled
                del self._queues[owner]
