"""Events of a stream: readers get them in order, and a listener can intercept them."""

from __future__ import annotations

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
