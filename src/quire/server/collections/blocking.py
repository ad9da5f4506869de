"""Run blocking work in the threads of an executor. Separate executors keep slow work from delaying other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from quire.server.errors import RETRY_SOON, ApiError
from quire.system.fair_executor import FairExecutor, TooManyJobs

T = TypeVar("T")


def make_executor(name: str, num_threads: int, max_waiting: int) -> FairExecutor:
    """Make an executor for a single owner, which gets half of the places."""
    return FairExecutor(name, num_threads, 2 * max_waiting)


async def run_blocking(executor: FairExecutor, work: Callable[[], T]) -> T:
    """Return the result of `work`. Raises ApiError 429 if too much work is queued, 503 if the executor is closed."""
    try:
        future = executor.submit(work)
    except TooManyJobs as error:
        raise ApiError(429, f"{error}; try again soon", code="queue_full", headers=RETRY_SOON) from None
    except RuntimeError:
        raise _closed() from None
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if future.cancelled() and waiting is not None and not waiting.cancelling():  # by `close`
            raise _closed() from None
        raise


def _closed() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down", headers=RETRY_SOON)
