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
    """Thread-safe. `max_jobs` limits the open jobs over all owners, `max_running` the running jobs of each."""

    def __init__(
        self, name: str, num_threads: int = 1, max_jobs: int | None = None, max_running: int | None = None
    ) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._num_threads = num_threads
        self._max_jobs = max_jobs
        self._max_running = num_threads if max_running is None else max_running
        self._lock = threading.Lock()  # guards the fields below
        self._num_open: Counter[str] = Counter()  # by owner, including running jobs
        self._queues: dict[str, _Queue] = {}  # by owner, in the order of their turns
        self._urgent: _Queue = {}
        self._num_running = 0  # threads
        self._running: Counter[str | None] = Counter()  # jobs by owner; None is urgent
        self._is_closed = False

    @property
    def num_open(self) -> int:
        """Number of waiting and running jobs."""
        return self._num_open.total()

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
        if (
            (self._urgent or self._next_owner() is not None)
            and self._num_running < self._num_threads
            and not self._is_closed
        ):
            self._num_running += 1
            self._pool.submit(self._run_next)

    def _next_owner(self) -> str | None:
        return next((owner for owner in self._queues if self._running[owner] < self._max_running), None)

    def _run_next(self) -> None:
        with self._lock:
            owner = None if self._urgent else self._next_owner()
            found = self._pop(owner)
            self._running[owner] += 1
        try:
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
                self._running[owner] -= 1
                if not self._running[owner]:
                    del self._running[owner]
                self._start_next()

    def _pop(self, owner: str | None) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Remove the next job of an owner, or the urgent one; None if all were cancelled meanwhile."""
        if owner is None:
            return _pop_first(self._urgent) if self._urgent else None
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
