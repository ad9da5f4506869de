"""Failures of the engine or of a request: affected clients get errors, and others do not notice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from async_engine.harness import (
    TIMEOUT_S,
    Gate,
    collect,
    deltas_of,
    finish,
    generate,
    greedy,
    idle,
    make,
    run,
    running,
    until,
)
from engines import thread_engine
from quire.async_engine.loop import Failures
from quire.async_engine.messages import (
    EngineUnavailable,
    Finished,
    ModelState,
    PoisonRequest,
    Preempted,
    RequestFailed,
    Resumed,
)
from quire.engine.engine import Engine
from quire.loading.progress import load_listener
from quire.outputs import LoadProgress, RequestOutput


class Injected(Exception):
    pass


def raising(*_: Any, **__: Any) -> Any:
    raise Injected("on purpose")


class Breaking:
    """Makes engines, the first of which fail when a certain request is present."""

    def __init__(self, stage: Callable[[Engine], tuple[Any, str]], times: int = 1, prompt: int = 66) -> None:
        self.stage = stage
        self.times = times
        self.prompt = prompt
        self.num_made = 0

    def __call__(self) -> Engine:
        self.num_made += 1
        engine = make(max_num_seqs=2)
        if self.num_made <= self.times:
            owner, name = self.stage(engine)
            usual = getattr(owner, name)

            def breaks(*args: Any, **more: Any) -> Any:
                is_there = any(r.prompt_token_ids[0] == self.prompt for r in engine.scheduler.queue.requests.values())
                return raising() if is_there else usual(*args, **more)

            setattr(owner, name, breaks)
        return engine


STAGES: dict[str, Callable[[Engine], tuple[Any, str]]] = {
    "schedule": lambda engine: (engine.scheduler, "schedule"),
    "update": lambda engine: (engine.scheduler, "update"),
    "figures": lambda engine: (engine.step_stats, "describe_state"),
    "abort": lambda engine: (engine, "abort"),
}


@pytest.fixture
def ended() -> list[RequestOutput]:
    return []


# -- one request -----------------------------------------------------------------------------------------------------


def test_a_step_that_fails_ends_its_requests_and_the_next_ones_are_served(ended: list[RequestOutput]) -> None:
    async def scene() -> None:
        async with running(partial(make, max_num_seqs=1), on_finished=ended.append) as engine:
            loaded = engine.engine
            usual, loaded.runner.execute = loaded.runner.execute, raising  # type: ignore[method-assign]
            gate = Gate(loaded)
            first = asyncio.create_task(finish(engine, "first", request_id="first"))
            await gate.wait()
            second = asyncio.create_task(finish(engine, "second", request_id="second"))
            await until(lambda: engine.num_queued == 2)
            gate._execute = lambda out: raising() if len(gate.steps) == 1 else usual(out)
            gate.open()
            with pytest.raises(RequestFailed, match="Injected: on purpose"):
                await first
            assert (await second).outputs[0].finish_reason == "length"
            assert engine.engine is loaded, "the engine goes on"
            await idle(engine)

    run(scene())
    assert [(output.request_id, output.outputs[0].finish_reason) for output in ended] == [
        ("first", "error"),
        ("second", "length"),
    ]


def test_requests_of_a_step_without_memory_run_again_with_the_same_tokens() -> None:
    """In the same engine; readers see a preemption."""

    def full() -> Any:
        raise RuntimeError("CUDA error: out of memory")

    async def scene() -> None:
        async with running() as engine:
            expected = [(await finish(engine, [n, 1], request_id=str(n))).outputs[0].token_ids for n in (5, 6)]
            loaded = engine.engine
            gate = Gate(loaded)
            usual = gate._execute
            gate._execute = lambda out: full() if len(gate.steps) == 3 else usual(out)
            tasks = [asyncio.create_task(collect(engine, [n, 1], request_id=f"again {n}")) for n in (5, 6)]
            await until(lambda: engine.num_queued == 2)
            gate.open()
            events = await asyncio.gather(*tasks)
            assert engine.engine is loaded
            for each, token_ids in zip(events, expected, strict=True):
                assert each[-1].output.outputs[0].token_ids == token_ids  # type: ignore[union-attr]
                assert {Preempted, Resumed} <= {type(event) for event in each}
            await idle(engine)

    run(scene())


@pytest.mark.parametrize("method", ["add", "pop_deltas", "to_output"])
def test_an_answer_that_cannot_be_written_fails_alone(method: str) -> None:
    async def scene() -> None:
        async with running() as engine:
            gate = Gate(engine.engine)
            tasks = [asyncio.create_task(finish(engine, [n, 1], request_id=str(n))) for n in (5, 6, 7)]
            await until(lambda: engine.num_queued == 3)
            await gate.let_pass()
            await until(lambda: len(engine.engine._states) == 3)
            setattr(engine.engine._states["6"], method, raising)
            gate.open()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[1], RequestFailed)
            assert "on purpose" in str(results[1])
            for result in (results[0], results[2]):
                assert len(result.outputs[0].token_ids) == 8
            await idle(engine)

    run(scene())


def test_a_listener_that_fails_changes_nothing() -> None:
    async def scene() -> None:
        async with running(on_stats=raising, on_finished=raising) as engine:
            output = await finish(engine, "x", request_id="a")
            assert output.outputs[0].finish_reason == "length"
            assert engine.state is ModelState.READY
            await idle(engine)

    run(scene())


# -- the engine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["schedule", "update", "figures"])
def test_an_engine_that_fails_starts_over_and_nothing_of_what_it_had_is_lost(
    stage: str, ended: list[RequestOutput], caplog: pytest.LogCaptureFixture
) -> None:
    makes = Breaking(STAGES[stage], prompt=4)  # breaks at the fourth request

    async def scene() -> None:
        async with running(makes, on_finished=ended.append) as engine:
            gate = Gate(engine.engine)
            begun = [asyncio.create_task(finish(engine, [n], greedy(50), request_id=str(n))) for n in (1, 2)]
            await until(lambda: engine.num_queued == 2)
            await gate.let_pass()
            await gate.let_pass()
            await until(lambda: engine.num_queued == 0, "the start of both")
            queued = [asyncio.create_task(collect(engine, [n], request_id=str(n))) for n in (3, 4)]
            await until(lambda: engine.num_queued == 2)
            gate.open()
            for task in begun:
                assert len((await task).outputs[0].token_ids) == 50
            for task in queued:
                events = await task
                assert isinstance(events[-1], Finished)
                assert sum(len(delta.token_ids) for delta in deltas_of(events)) == 8
            assert engine.state is ModelState.READY
            assert engine.error is None
            await idle(engine)

    run(scene())
    assert makes.num_made == 2
    assert sorted((o.request_id, o.outputs[0].finish_reason) for o in ended) == [
        ("1", "length"), ("2", "length"), ("3", "length"), ("4", "length"),
    ]  # fmt: skip
    (record,) = (record for record in caplog.records if "the engine failed" in record.message)
    assert record.exc_info is not None, "the whole of it is logged"


def test_a_request_that_breaks_the_engine_every_time_is_given_up_and_the_engine_is_not() -> None:
    makes = Breaking(STAGES["schedule"], times=99)

    async def scene() -> None:
        async with running(makes) as engine:
            with pytest.raises(RequestFailed, match="on purpose"):
                await finish(engine, [66], request_id="bad")
            await until(lambda: engine.state is ModelState.READY)
            await finish(engine, [1], request_id="good")
            await idle(engine)

    run(scene())
    assert makes.num_made == 3


def test_an_engine_that_fails_at_an_abort_starts_over() -> None:
    makes = Breaking(STAGES["abort"])

    async def scene() -> None:
        async with running(makes) as engine:
            stream = generate(engine, [66], greedy(200), request_id="a")
            await anext(stream)
            await stream.aclose()
            await until(lambda: makes.num_made == 2 and engine.state is ModelState.READY)
            await finish(engine, [66], request_id="a")
            await idle(engine)

    run(scene())


def test_an_engine_that_fails_three_times_within_a_minute_has_failed_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makes = Breaking(STAGES["update"], times=4)
    may_load = threading.Event()

    def wait(failures: Failures) -> None:
        pauses.append(failures.pause_s)
        assert may_load.wait(TIMEOUT_S)

    pauses: list[float] = []
    monkeypatch.setattr(Failures, "pause", wait)

    async def scene() -> None:
        async with running(makes) as engine:
            with pytest.raises(PoisonRequest, match="failed 2 times"):
                await finish(engine, [66], request_id="bad")
            await until(lambda: engine.state is ModelState.READY)
            worse = asyncio.create_task(finish(engine, [66], request_id="worse"))
            await until(lambda: engine.state is ModelState.FAILED)
            assert engine.error is not None
            assert "3 times" in engine.error
            assert not engine.is_given_up
            with pytest.raises(EngineUnavailable, match=r"on purpose; it is loaded again in 1 s") as late:
                await finish(engine, [1], request_id="late")
            assert late.value.retry_after_s == 1
            with pytest.raises(EngineUnavailable, match="on purpose"):
                await engine.wait_ready()
            assert not await engine.heartbeat(TIMEOUT_S)
            may_load.set()
            with pytest.raises(PoisonRequest):
                await worse
            await until(lambda: engine.state is ModelState.READY)
            assert (await finish(engine, [66], request_id="good")).outputs[0].finish_reason == "length"
            await idle(engine)

    run(scene())
    assert makes.num_made == 5
    assert pauses == [1, 2], "longer with each failure"


def test_the_pause_between_loads_grows_to_a_minute_and_ends_with_a_minute_of_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("quire.async_engine.loop.time.monotonic", lambda: now)
    failures, pauses = Failures(), []
    for _ in range(10):
        failures.record_failure("a fault")
        pauses.append(failures.pause_s)
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    failures.record_ready()
    now += 61
    assert failures.record_failure("a fault") is None
    assert failures.pause_s == 0


def test_failures_count_only_where_they_come_close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("quire.async_engine.loop.time.monotonic", lambda: now)
    failures = Failures()
    for served_s in (0, 40, 40, 40, 10):  # regardless of their loading times
        now += 1000
        failures.record_ready()
        now += served_s
        why = failures.record_failure("a fault")
        assert (why is not None) == (served_s == 10)
    failures = Failures()
    assert [failures.record_failure("a fault") is None for _ in range(3)] == [True, True, False], "never ready at all"


def test_a_model_that_cannot_be_loaded_says_why() -> None:
    def refuse() -> Engine:
        raise ValueError("no such model; there are these: a, b")

    async def scene() -> None:
        engine = thread_engine("x", refuse)
        engine.start()
        with pytest.raises(EngineUnavailable, match=r"x cannot be served: .*no such model; there are these: a, b"):
            await engine.wait_ready()
        assert engine.state is ModelState.FAILED
        with pytest.raises(EngineUnavailable):
            _ = engine.engine
        with pytest.raises(EngineUnavailable):
            await finish(engine, "x", request_id="a")
        engine.shutdown()

    run(scene())


# -- hangs -----------------------------------------------------------------------------------------------------------


def test_a_step_that_hangs_is_noticed_and_logged_with_all_stacks(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with running(hang_timeout_s=0.1) as engine:
            assert await engine.heartbeat(TIMEOUT_S)
            gate = Gate(engine.engine)
            task = asyncio.create_task(finish(engine, "x", request_id="a"))
            await gate.wait()
            assert not await engine.heartbeat(0.05)
            await until(lambda: "a step has not ended" in caplog.text)
            assert "_pass" in caplog.text, "where it hangs"
            await asyncio.sleep(0.2)
            assert caplog.text.count("a step has not ended") == 1, "a hang is told once"
            gate.open()
            await task
            assert await engine.heartbeat(TIMEOUT_S)
            assert not engine._replies

    run(scene())


HANGING = """
import asyncio, ctypes, functools, sys, threading, time
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.host import ThreadHost
from quire.async_engine.event_stream import EventStream
from quire.config import EngineConfig
from quire.assembly import start_engine

async def main():
    config = EngineConfig("random:tiny", num_kv_blocks=64, use_tqdm=False)
    engine = AsyncEngine(
        ThreadHost("tiny", functools.partial(start_engine, config), hang_timeout_s=2.0, exit_on_hang=True)
    )
    engine.start()
    await engine.wait_ready()
    engine.engine.runner.execute = lambda out: {hang}
    stream = EventStream()
    await engine.submit(stream, "x", request_id="a")
    while True:
        await stream.read()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("hang", "status", "said"),
    [
        ("time.sleep(1000)", 70, "a step has not ended"),
        ("ctypes.PyDLL(None).sleep(1000)", 1, "Timeout"),  # holds the GIL, so no other Python code runs
    ],
    ids=["waiting", "holding the interpreter"],
)
def test_a_hang_ends_the_process_with_an_error_where_that_is_asked_for(hang: str, status: int, said: str) -> None:
    code = HANGING.format(hang=hang)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "_step" in done.stderr, "where it hangs"


# -- the end ---------------------------------------------------------------------------------------------------------


def test_draining_lets_everything_finish_that_was_taken_and_takes_nothing_more(ended: list[RequestOutput]) -> None:
    async def scene() -> None:
        async with running(partial(make, max_num_seqs=2), on_finished=ended.append) as engine:
            gate = Gate(engine.engine)
            tasks = [asyncio.create_task(finish(engine, [n], request_id=str(n))) for n in range(6)]
            await until(lambda: engine.num_queued == 6)
            draining = asyncio.create_task(engine.drain(TIMEOUT_S))
            await until(lambda: engine.state is ModelState.DRAINING)
            with pytest.raises(EngineUnavailable, match="shutting down"):
                await finish(engine, "x", request_id="late")
            gate.open()
            assert await draining == 0
            for task in tasks:
                assert (await task).outputs[0].finish_reason == "length"

    run(scene())
    assert len(ended) == 6


def test_what_has_not_finished_when_draining_ends_is_cut_off_and_told(ended: list[RequestOutput]) -> None:
    async def scene() -> None:
        async with running(partial(make, max_num_seqs=2), on_finished=ended.append) as engine:
            gate = Gate(engine.engine)
            tasks = [asyncio.create_task(finish(engine, [n], greedy(50), request_id=str(n))) for n in range(6)]
            await until(lambda: engine.num_queued == 6)
            assert await engine.drain(0.05) == 6
            for task in tasks:
                with pytest.raises(EngineUnavailable, match="shut down"):
                    await task
            gate.open()
            await until(lambda: not engine.engine.has_unfinished())

    run(scene())
    assert sorted((output.request_id, output.outputs[0].finish_reason) for output in ended) == [
        (str(n), "abort") for n in range(6)
    ]


def test_shutdown_ends_the_thread_and_fails_waiting_requests() -> None:
    async def scene() -> None:
        async with running() as engine:
            task = asyncio.create_task(finish(engine, "x", greedy(200), request_id="a"))
            await until(lambda: engine.engine.last_stats is not None)
            await asyncio.to_thread(engine.shutdown)
            with pytest.raises(EngineUnavailable, match="shut down"):
                await task
            assert not [thread for thread in threading.enumerate() if thread.name == "engine tiny"]
            engine.shutdown()
            assert not await engine.heartbeat(0.05)
            with pytest.raises(EngineUnavailable, match="shutting down"):
                await finish(engine, "x", request_id="late")

    run(scene())


def test_an_engine_that_was_never_started_can_be_shut_down() -> None:
    thread_engine("tiny", make).shutdown()


def test_an_engine_without_requests_takes_no_steps() -> None:
    async def scene() -> None:
        num_steps = 0

        def count(_: Any) -> None:
            nonlocal num_steps
            num_steps += 1

        async with running(on_stats=count) as engine:
            await finish(engine, "x", request_id="a")
            await idle(engine)
            steps_so_far = num_steps
            taken = engine._host._loop.inbox
            await asyncio.sleep(0.2)
            assert num_steps == steps_so_far == 8
            assert taken.empty()

    run(scene())


def test_an_engine_whose_layers_will_not_come_starts_over() -> None:
    told: list[Callable[[LoadProgress], None]] = []

    def make_arriving() -> Engine:
        listener = load_listener.get()
        assert listener is not None
        told.append(listener)
        return make()

    async def scenario() -> None:
        async with running(make_arriving) as engine:
            told[0](LoadProgress(0, 1, 5, 10, error="layer 3 is cut off"))
            while len(told) < 2 or engine.state is not ModelState.READY:
                await asyncio.sleep(0.01)
            told[0](LoadProgress(0, 1, 5, 10, error="of an engine that is gone"))
            assert (await finish(engine, "Hello", request_id="a")).outputs[0].token_ids
            assert len(told) == 2

    run(scenario())
