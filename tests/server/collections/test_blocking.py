"""Requests that wait for a thread at shutdown get an answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from quire.server.collections.storage import run_blocking
from quire.server.errors import ApiError
from quire.system.fair_executor import FairExecutor


def test_what_waits_when_an_executor_is_closed_is_refused_and_what_gives_up_is_not() -> None:
    async def scene() -> None:
        executor, begun, goes_on = FairExecutor("tests", 1, 20), threading.Event(), threading.Event()
        working = asyncio.ensure_future(run_blocking(executor, lambda: (begun.set(), goes_on.wait())[1]))
        await asyncio.to_thread(begun.wait)
        waiting, leaving = (asyncio.ensure_future(run_blocking(executor, goes_on.wait)) for _ in range(2))
        await asyncio.sleep(0.01)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        executor.close()
        for refused in (waiting, asyncio.ensure_future(run_blocking(executor, goes_on.wait))):
            with pytest.raises(ApiError, match="shutting down") as found:
                await refused
            assert found.value.status == 503
        goes_on.set()
        assert await working

    asyncio.run(scene())


def test_the_searches_of_one_key_do_not_hold_up_anothers() -> None:
    async def scene() -> None:
        executor, goes_on, done = FairExecutor("tests", 1, 20), threading.Event(), list[str]()
        first = asyncio.ensure_future(run_blocking(executor, goes_on.wait, "flood"))
        flood = [asyncio.ensure_future(run_blocking(executor, lambda: done.append("flood"), "flood")) for _ in range(5)]
        other = asyncio.ensure_future(run_blocking(executor, lambda: done.append("other"), "other"))
        await asyncio.sleep(0.01)
        goes_on.set()
        await asyncio.gather(first, *flood, other)
        assert "other" in done[:2]
        executor.close()

    asyncio.run(scene())
