"""Events of a stream: readers get them in order, and a listener can intercept them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from async_engine.harness import run
from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import Preempted, Progress, RequestFailed, Resumed
from quire.outputs import Delta


def grown(text: str) -> Progress:
    return Progress([Delta(0, text, [1])])


def test_what_comes_while_the_reader_is_busy_waits_as_few_events_in_their_order() -> None:
    async def scene() -> None:
        stream = EventStream()
        for number, event in [(0, grown("a")), (1, grown("x")), (0, grown("b")), (0, Preempted())]:
            stream.put(number, event)
        stream.put(1, Preempted())
        stream.put(1, Resumed())
        assert await stream.read() == [(0, Progress([Delta(0, "ab", [1, 1])])), (0, Preempted()), (1, grown("x"))]
        for _ in range(10_000):
            stream.put(0, grown("a"))
            assert len(stream._pending) < 100
        stream.put(0, RequestFailed("it broke"))
        assert await stream.read() == [(0, Progress([Delta(0, "a" * 10_000, [1] * 10_000)]))]
        for _ in range(2):
            with pytest.raises(RequestFailed, match="it broke"):
                await stream.read()

    run(scene())


def test_what_somebody_takes_does_not_wake_the_reader_and_nothing_overtakes() -> None:
    async def scene() -> None:
        passed: list[Any] = []
        takes = True

        def take(number: int, event: Any) -> bool:
            if takes:
                passed.append(event)
            return takes

        stream = EventStream(take)
        stream.put(0, grown("first"))  # no reader waits yet
        assert await stream.read() == [(0, grown("first"))]
        reader = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.put(0, grown("second"))
        takes = False
        stream.put(0, grown("third"))
        takes = True
        stream.put(0, grown("fourth"))  # the reader's turn comes first
        assert await reader == [(0, Progress([Delta(0, "thirdfourth", [1, 1])]))]
        assert passed == [grown("second")]

    run(scene())


def test_who_cannot_take_an_event_ends_that_stream_alone() -> None:
    async def scene() -> None:
        def fail(number: int, event: Any) -> bool:
            raise ZeroDivisionError

        stream = EventStream(fail)
        reader = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.put(0, grown("a"))
        with pytest.raises(ZeroDivisionError):
            await reader

    run(scene())
