"""A thread pool that serves its owners round-robin, within a limit of open jobs.

With a limit, an owner may have as many open jobs as places are free (dynamic thresholds: Choudhury and Hahne, 1998). A
single owner gets half of the places, and a newcomer always finds one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_Queue = dict[Future[Any], Callable[[], Any]]  # jobs in order


class TooManyJobs(RuntimeError):
    """An owner has too many open jobs."""


class FairExecutor:
    """Thread-safe. `max_jobs` limits the open jobs over all owners."""

    def __init__(self, name: str, num_threads: int = 1, max_jobs: int | None = None) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._num_threads = num_threads
        self._max_jobs = max_jobs
        self._lock = threading.Lock()  # guards the fields below
        self._num_open: Counter[str] = Counter()  # by owner, including running jobs
        self._queues: dict[str, _Queue] = {}  # by owner, in the order of their turns
        self._urgent: _Queue = {}
        self._num_running = 0
        self._is_closed = False

    def submit(self, job: Callable[[], T], owner: str = "", *, is_urgent: bool = False) -> Future[T]:
        """Queue a job; raises TooManyJobs, or RuntimeError once closed. Cancelling the future frees its place."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the executor is closed")
            if self._max_jobs is not None and self._num_open[owner] >= self._max_jobs - self._num_open.total():
                raise TooManyJobs(f"{self._num_open[owner]} {self._name} wait already")
            self._num_open[owner] += 1
            queue = self._urgent if is_urgent else self._queues.setdefault(owner, {})
            queue[future] = job
            self._start_next()
        future.add_done_callback(lambda future: self._remove(owner, future))
        return future

    def close(self) -> None:
        """Cancel waiting jobs and accept no more. Running jobs continue."""
        with self._lock:
            self._is_closed = True
            waiting = [*self._urgent, *(future for queue in self._queues.values() for future in queue)]
            self._urgent.clear()
            self._queues.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for future in waiting:
            future.cancel()

    def _start_next(self) -> None:
        """Start a thread's next job if there is one. Call under the lock."""
        if (self._urgent or self._queues) and self._num_running < self._num_threads and not self._is_closed:
            self._num_running += 1
            self._pool.submit(self._run_next)

    def _run_next(self) -> None:
        try:
            with self._lock:
                found = self._pop()
            if found is None or not found[0].set_running_or_notify_cancel():
                return
            future, job = found
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
        finally:
            with self._lock:
                self._num_running -= 1
                self._start_next()

    def _pop(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Remove the next job; None if all were cancelled meanwhile."""
        if self._urgent:
            return _pop_first(self._urgent)
        if not self._queues:
            return None
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        found = _pop_first(queue)
        if queue:
            self._queues[owner] = queue  # behind the others
        return found

    def _remove(self, owner: str, future: Future[T]) -> None:
        with self._lock:
            self._num_open[owner] -= 1
            if not self._num_open[owner]:
                del self._num_open[owner]
            self._urgent.pop(future, None)
            queue = self._queues.get(owner, {})
            if queue.pop(future, None) is not None and not queue:  # it was cancelled
                del self._queues[owner]


def _pop_first(queue: _Queue) -> tuple[Future[Any], Callable[[], Any]]:
    future = next(iter(queue))
    return future, queue.pop(future)
