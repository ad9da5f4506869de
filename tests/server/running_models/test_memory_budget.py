"""More models than fit into memory: loads displace idle models, the least recently used first, and cut off none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from async_engine.child_engines import treacherous
from async_engine.harness import finish, greedy, run
from process_pool import fork_children
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.process import ProcessHost
from quire.server.running_models import memory_budget
from quire.server.running_models.memory_budget import MemoryBudget

SIZE = 4 * 2**30  #: of each model; more than a process really takes
SLOW = [69]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)
    monkeypatch.setattr(memory_budget, "_QUIET_S", 0.05)
    monkeypatch.setattr(memory_budget, "_PATIENCE_S", 0.5)


@asynccontextmanager
async def models(names: str, *, num_fit: int) -> AsyncIterator[list[AsyncEngine]]:
    """Yield unloaded engines, and check that never more than `num_fit` have a process."""
    budget = MemoryBudget(num_fit * SIZE + SIZE // 2)
    engines = []
    for name in names:
        host = ProcessHost(name, treacherous, waits=True, on_wake=partial(budget.load, name))
        engines.append(AsyncEngine(host))
        budget.add(engines[-1], host.load, SIZE, is_loading=False)
        engines[-1].start()
    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, sum(engine.pid is not None for engine in engines))
            await asyncio.sleep(0.005)

    counting = asyncio.create_task(count())
    try:
        yield engines
    finally:
        counting.cancel()
        for engine in engines:
            await asyncio.to_thread(engine.shutdown)
    assert most == num_fit


def test_the_least_recently_used_model_makes_room() -> None:
    async def scene() -> None:
        async with models("abc", num_fit=2) as (a, b, c):
            states = []
            for engine in (a, b, c, b, a):
                await finish(engine, "x", request_id="asked")
                states.append("".join(each.state.value[0] for each in (a, b, c)))
            assert states == ["ruu", "rru", "urr", "urr", "rru"]

    run(scene())


def test_busy_models_take_turns_and_finish_their_requests() -> None:
    async def scene() -> None:
        async with models("ab", num_fit=1) as (a, b):
            lengths = []

            async def ask_without_pause(number: int) -> None:
                while not other.done():
                    output = await finish(a, SLOW, greedy(10), request_id=f"{number}")
                    lengths.append(len(output.outputs[0].token_ids))

            first = await finish(a, SLOW, greedy(10), request_id="first")
            other = asyncio.create_task(finish(b, SLOW, greedy(10), request_id="other"))
            await asyncio.gather(*map(ask_without_pause, range(3)))
            assert len(first.outputs[0].token_ids) == len((await other).outputs[0].token_ids) == 10
            assert set(lengths) == {10}

    run(scene())


def test_a_load_that_nobody_waits_for_is_given_up() -> None:
    async def scene() -> None:
        async with models("ab", num_fit=1) as (a, b):
            await finish(a, "x", request_id="first")
            slow = asyncio.create_task(finish(a, SLOW, greedy(40), request_id="slow"))
            while not a.num_requests:
                await asyncio.sleep(0.01)
            left = asyncio.create_task(finish(b, "x", request_id="left"))
            while b.state != "loading":
                await asyncio.sleep(0.01)
            left.cancel()
            while b.state != "unloaded":
                await asyncio.sleep(0.01)
            assert a.num_requests == 1
            assert len((await slow).outputs[0].token_ids) == 40

    run(scene())
