"""Threads for work that blocks, a lane for each kind: what is slow in one lane holds up nobody in another."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from quire.server.errors import RETRY_SOON, ApiError

T = TypeVar("T")


class Lane:
    """Some threads, and a bound on the work that runs or waits for them.

    Args:
        name: of its threads.
        max_waiting: work beyond that is refused.
    """

    def __init__(self, name: str, num_threads: int, max_waiting: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._name = name
        self._max_waiting = max_waiting
        self._num = 0
        self._counting = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, from one of the threads. Who gives up waiting does not end the work.

        Raises:
            ApiError: 429, too much waits already; 503, the lane is closed.
        """
        if self._num >= self._max_waiting:
            message = f"{self._num} requests wait for {self._name} already; try again soon"
            raise ApiError(429, message, code="queue_full", headers=RETRY_SOON)
        try:
            future = self._threads.submit(work)
        except RuntimeError:  # after `close`
            raise _closed() from None
        with self._counting:
            self._num += 1
        future.add_done_callback(self._count_down)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if future.cancelled() and waiting is not None and not waiting.cancelling():  # by `close`
                raise _closed() from None
            raise

    def _count_down(self, future: object) -> None:
        with self._counting:
            self._num -= 1

    def close(self) -> None:
        """Take no more, and drop what has not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _closed() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", headers=RETRY_SOON)


class Turns:
    """Turns at something that takes one at a time: first come, first served, but those in a hurry go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: tuple[deque[object], deque[object]] = (deque(), deque())  #: in a hurry; others
        self._is_taken = False

    @contextmanager
    def take(self, *, hurries: bool) -> Iterator[None]:
        """Wait for the turn, and have it within."""
        mine = object()
        with self._changed:
            self._waiting[not hurries].append(mine)
            self._changed.wait_for(lambda: not self._is_taken and self._next() is mine)
            self._waiting[not hurries].popleft()
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    def _next(self) -> object:
        hurried, others = self._waiting
        return hurried[0] if hurried else others[0]
