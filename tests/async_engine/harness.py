"""Asyncio engines over a tiny real model, with control over the engine thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from engines import thread_engine
from quire.assembly import LoadedModel, load, make_engine
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import Event, Finished, ModelState, Progress
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.outputs import Delta, RequestOutput
from quire.sampling_params import SamplingParams

OPTIONS: dict[str, Any] = {
    "num_kv_blocks": 64,
    "block_size": 4,
    "use_tqdm": False,
    "device": "cpu",
    "speculation": "off",
}
TIMEOUT_S = float(os.environ.get("QUIRE_TEST_TIMEOUT_S", "100"))  # for operations that may hang


@cache
def loaded() -> LoadedModel:
    return load(EngineConfig("random:tiny", **OPTIONS))


def make(**options: Any) -> Engine:
    """Make a new engine over the shared model."""
    return make_engine(EngineConfig("random:tiny", **(OPTIONS | options)), loaded())


def greedy(max_tokens: int = 8, **more: Any) -> SamplingParams:
    return SamplingParams(**({"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True} | more))


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


@asynccontextmanager
async def running(make: Callable[[], Engine] = make, **options: Any) -> AsyncIterator[AsyncEngine]:
    """Yield a ready engine; shut it down afterwards and check its state."""
    engine = thread_engine("tiny", make, **options)
    engine.start()
    try:
        await engine.wait_ready()
        yield engine
    finally:
        engine.shutdown()


async def generate(engine: AsyncEngine, prompt: Any, params: Any = None, **options: Any) -> AsyncGenerator[Event, None]:
    """Yield a request's events; closing the iterator aborts the request."""
    stream = EventStream()
    try:
        await engine.submit(stream, prompt, params, **options)
        while True:
            for _, event in await stream.read():
                yield event
                if isinstance(event, Finished):
                    return
    finally:
        engine.leave(stream)


async def collect(engine: AsyncEngine, prompt: Any, params: Any = None, **options: Any) -> list[Event]:
    return [event async for event in generate(engine, prompt, params or greedy(), **options)]


async def finish(engine: AsyncEngine, prompt: Any, params: Any = None, **options: Any) -> RequestOutput:
    last = (await collect(engine, prompt, params, **options))[-1]
    assert isinstance(last, Finished)
    return last.output


def deltas_of(events: list[Event], index: int = 0) -> list[Delta]:
    return [d for event in events if isinstance(event, Progress) for d in event.deltas if d.index == index]


async def until(condition: Callable[[], Any], what: str = "it") -> None:
    """Wait for a condition set by another thread."""
    for _ in range(int(TIMEOUT_S * 200)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{what} never happened")


def check_nothing_leaks(engine: AsyncEngine) -> None:
    """With nothing running, free and cached blocks are all blocks."""
    scheduler = engine.engine.scheduler
    scheduler.check_integrity()
    assert not scheduler.queue.requests
    assert not engine.engine._states
    assert scheduler.kv.pool.num_used == 0
    assert not engine._sent
    assert not engine._sent._ids
    assert engine.num_queued == 0


async def idle(engine: AsyncEngine) -> None:
    """Wait until the engine is idle, and check for leaks."""
    await until(lambda: engine.state is not ModelState.READY or not engine.engine.has_unfinished(), "the end")
    assert await engine.heartbeat(TIMEOUT_S)
    check_nothing_leaks(engine)


class Gate:
    """Blocks each step of an engine until it is opened, or lets single steps pass."""

    def __init__(self, engine: Engine) -> None:
        self.steps: list[set[str]] = []  #: number of requests at each arrival
        self.num_passed = 0
        self._permits = threading.Semaphore(0)
        self._is_open = False
        self._scheduler = engine.scheduler
        self._execute = engine.runner.execute
        engine.runner.execute = self._pass  # type: ignore[method-assign]

    def _pass(self, out: Any) -> Any:
        self.steps.append(set(self._scheduler.queue.requests))
        if not self._is_open:
            assert self._permits.acquire(timeout=TIMEOUT_S), "the gate was not opened"
        self.num_passed += 1
        return self._execute(out)

    async def wait(self) -> None:
        """Wait until a step is blocked at the gate."""
        await until(lambda: len(self.steps) > self.num_passed, "a step")

    async def let_pass(self) -> None:
        """Let one step pass, and wait for the next."""
        await self.wait()
        number = len(self.steps)
        self._permits.release()
        await until(lambda: len(self.steps) > number, "a further step")

    def open(self) -> None:
        self._is_open = True
        self._permits.release()
