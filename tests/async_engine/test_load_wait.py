"""Requests for a loading model wait within the queue's limits, for a bounded time, and fail if loading fails."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from async_engine.harness import TIMEOUT_S, check_nothing_leaks, finish, greedy, make, run, until
from engines import process_engine, thread_engine
from process_pool import fork_children
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import EngineUnavailable, LoadReport, ModelState, QueueFull
from quire.engine.engine import Engine
from quire.outputs import LoadProgress
from quire.server.lifecycle import unload_idle


@asynccontextmanager
async def loading(**options: Any) -> AsyncIterator[tuple[AsyncEngine, threading.Event]]:
    """Yield an engine that loads until the event is set."""
    may_load = threading.Event()

    def load() -> Engine:
        assert may_load.wait(TIMEOUT_S)
        return make()

    engine = thread_engine("x", load, **options)
    engine.start()
    try:
        yield engine, may_load
    finally:
        may_load.set()
        engine.shutdown()


def ask(engine: AsyncEngine, name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(finish(engine, "x", request_id=name))


def test_requests_wait_for_the_model_in_the_bounds_of_the_queue() -> None:
    async def scene() -> None:
        async with loading(max_queue=3) as (engine, may_load):
            asked = [ask(engine, name) for name in "abc"]
            await until(lambda: engine.num_queued == 3)
            assert engine.num_requests == 3
            with pytest.raises(QueueFull, match="3 requests wait for x already"):
                await finish(engine, "x", request_id="d")
            asked.pop().cancel()  # its client has left
            await until(lambda: engine.num_queued == 2)
            asked.append(ask(engine, "e"))
            assert not await engine.heartbeat(TIMEOUT_S)
            may_load.set()
            assert [(await each).outputs[0].finish_reason for each in asked] == ["length"] * 3
            check_nothing_leaks(engine)

    run(scene())


def test_the_wait_ends_with_its_time_the_models_failure_or_the_shutdown() -> None:
    def refuse() -> Engine:
        assert may_fail.wait(TIMEOUT_S)
        raise ValueError("no such model")

    may_fail = threading.Event()

    async def scene() -> None:
        for limit_s in (0, 0.01):
            async with loading(load_wait_s=limit_s) as (engine, _):
                with pytest.raises(EngineUnavailable, match="being loaded"):
                    await finish(engine, "x", request_id="a")
                assert engine.num_queued == 0
        async with loading() as (engine, _):
            asked = ask(engine, "a")
            await until(lambda: engine.num_queued == 1)
            assert await engine.drain(TIMEOUT_S) == 0
            with pytest.raises(EngineUnavailable, match="shutting down"):
                await asked
        engine = thread_engine("x", refuse)
        engine.start()
        asked = ask(engine, "a")
        await until(lambda: engine.num_queued == 1)
        may_fail.set()
        with pytest.raises(EngineUnavailable, match="no such model"):
            await asked

    run(scene())


def test_how_far_loading_is_shows_from_start_to_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "quire")
    told: list[LoadProgress] = []

    async def scene() -> None:
        async with loading(on_load=told.append) as (engine, may_load):
            assert told == [LoadProgress(0, 1, 0, 0, phase="imports")]
            for stage, error in ((0, None), (1, "no such device"), (1, "no such device"), (3, None)):
                engine._handle_report(LoadReport(LoadProgress(stage, 3, 60, 100, 12.4, error)))
            assert engine.load_progress is told[-1]
            engine._handle_report(LoadReport(LoadProgress(0, 1, 60, 100)))
            may_load.set()
            await engine.wait_ready()
            assert (told[-1].stage, told[-1].num_stages) == (1, 1)
            engine._handle_report(LoadReport(LoadProgress(0, 1, 99, 100)))
            assert told[-1] == LoadProgress(1, 1, 99, 100), "it serves while its last bytes arrive"
            now_s = time.monotonic() + 1000
            monkeypatch.setattr("quire.async_engine.async_engine.time", SimpleNamespace(monotonic=lambda: now_s))
            assert engine.idle_s >= 999
            engine._handle_report(LoadReport(LoadProgress(1, 1, 100, 100)))
            assert engine.idle_s == 0, "a model that still arrives is not idle"

    run(scene())
    assert [line for line in caplog.messages if "stage" in line] == [
        "x: stage 1 of 3 serves, 60% is loaded, 12 s left",
        "x: stage 3 of 3 serves: the whole model",
    ]


def test_an_idle_process_is_unloaded_and_comes_back_once_for_all_who_ask(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from async_engine.child_engines import treacherous

    fork_children(monkeypatch)
    caplog.set_level("INFO", "quire")

    async def scene() -> None:
        engine = process_engine("tiny", treacherous)
        assert not engine.unload(), "what loads is no use to unload"
        engine.start()
        slow = asyncio.create_task(finish(engine, [69], greedy(40), request_id="slow"))
        await until(lambda: engine.state is ModelState.READY and engine.num_requests > 0)
        assert not engine.unload(), "it has work"
        await slow
        expected = (await ask(engine, "first")).outputs[0].text
        process = engine._host._child  # type: ignore[attr-defined]
        beat = asyncio.create_task(engine.heartbeat(TIMEOUT_S))
        await asyncio.sleep(0)
        assert engine.unload()
        await asyncio.wait_for(beat, TIMEOUT_S)
        assert (engine.state, engine.forecast, engine.idle_s) == (ModelState.UNLOADED, None, 0)
        assert engine.engine.tokenizer.encode("a"), "its facts stay"
        engine.delete_documents([])  # waits for the next process
        stopping = [ask(engine, name) for name in "abc"]  # while the process still ends
        assert [(await each).outputs[0].text for each in stopping] == [expected] * 3
        assert not process.is_alive()

        process = engine._host._child  # type: ignore[attr-defined]
        watching = asyncio.create_task(unload_idle(SimpleNamespace(engines=[engine]), 0.01))
        await until(lambda: engine.state is ModelState.UNLOADED and not process.is_alive())
        watching.cancel()
        await engine.wait_ready()
        assert engine.state is ModelState.UNLOADED, "no request came"
        assert (await ask(engine, "d")).outputs[0].text == expected
        assert engine.unload()
        await asyncio.to_thread(engine.shutdown)
        assert not engine._host._thread.is_alive()  # type: ignore[attr-defined]

    run(scene())
    assert [line for line in caplog.messages if line.startswith("tiny: ready")] == ["tiny: ready"] * 3
    assert "ended with status" not in caplog.text
