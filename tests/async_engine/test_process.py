"""An engine process serves like an engine thread, and its death ends nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from async_engine.child_engines import (
    ends_while_it_loads,
    is_killed_while_it_loads,
    loads_for,
    refuses,
    treacherous,
    usual,
)
from async_engine.harness import TIMEOUT_S, collect, deltas_of, finish, generate, greedy, run, until
from engines import process_engine
from process_pool import fork_children
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import (
    EngineLost,
    EngineUnavailable,
    Finished,
    ModelState,
    Preempted,
    Progress,
    RequestFailed,
    Resumed,
    Started,
)
from quire.outputs import RequestOutput, Stats
from quire.sampling_params import SamplingParams


@pytest.fixture(autouse=True)
def _imports_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)


@asynccontextmanager
async def in_process(make: Callable[[], Any], **options: Any) -> AsyncIterator[AsyncEngine]:
    engine = process_engine("tiny", make, **options)
    engine.start()
    try:
        await engine.wait_ready()
        yield engine
    finally:
        await asyncio.to_thread(engine.shutdown)


def pid_of(engine: AsyncEngine) -> int:
    return engine._host._child.pid  # type: ignore[attr-defined]


def test_it_serves_as_an_engine_in_a_thread_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quire")
    stats: list[Stats] = []
    ended: list[RequestOutput] = []

    async def scene() -> None:
        async with in_process(usual, on_stats=stats.append, on_finished=ended.append) as engine:
            assert pid_of(engine) != os.getpid()
            assert await engine.heartbeat(TIMEOUT_S)
            expected = usual()
            facts = engine.engine
            assert facts.max_model_len == expected.max_model_len
            assert facts.vocab_size == expected.vocab_size
            assert facts.default_sampling_params() == expected.default_sampling_params()
            assert facts.tokenizer.decode(facts.tokenizer.encode("Hällo")) == "Hällo"

            params = SamplingParams(n=2, max_tokens=9, seed=1, logprobs=2)
            answer = expected.add_request("Once upon a time", params)
            while expected.has_unfinished():
                expected.step()
            events = await collect(engine, "Once upon a time", params, request_id="a")
            assert isinstance(events[0], Started)
            assert isinstance(events[-1], Finished)
            for output in answer.to_output().outputs:
                assert events[-1].output.outputs[output.index] == output
                assert "".join(delta.text for delta in deltas_of(events, output.index)) == output.text

            with pytest.raises(ValueError, match="max_model_len"):
                await finish(engine, [1] * 5000, request_id="a")
            stream = generate(engine, "left", greedy(400), request_id="left")
            await anext(stream)
            await stream.aclose()
            assert await engine.heartbeat(TIMEOUT_S)
            assert await engine.drain(TIMEOUT_S) == 0
            assert engine.state is ModelState.DRAINING

    run(scene())
    assert [(output.request_id, output.outputs[0].finish_reason) for output in ended] == [
        ("a", "length"),
        ("left", "abort"),
    ]
    assert stats[-1].num_blocks == 400
    theirs = [record.getMessage() for record in caplog.records if record.process != os.getpid()]
    loaded = [line for line in theirs if "LlamaForCausalLM" in line]
    assert [line.partition(":")[0] for line in loaded] == ["random"], "its log lines are ours, and bare"


@pytest.mark.parametrize("token", [67, 68], ids=["hangs", "ends"])
def test_a_request_at_which_the_process_hangs_or_ends_every_time_is_given_up(
    token: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with in_process(treacherous, hang_timeout_s=2.5) as engine:
            pid = pid_of(engine)
            with pytest.raises(EngineLost, match=r"failed 2 times.*: engine process ended with status"):
                await finish(engine, [token], request_id="bad")
            await until(lambda: engine.state is ModelState.READY)
            assert (await finish(engine, [1], request_id="good")).outputs[0].finish_reason == "length"
            assert pid_of(engine) != pid

    run(scene())
    if token == 67:
        assert "a step has not ended" in caplog.text
        assert "in betray" in caplog.text, "where it hung"
    assert f"ended with status {70 if token == 67 else 9}" in caplog.text


def test_a_process_that_is_stopped_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("_QUIET_S", "_GRACE_S", "_POLL_S"):
        monkeypatch.setattr(f"quire.async_engine.process.{name}", 0.25)

    async def scene() -> None:
        async with in_process(treacherous, hang_timeout_s=2.5) as engine:
            await asyncio.sleep(3.5)  # without requests the process sends heartbeats
            pid = pid_of(engine)
            lost = asyncio.create_task(finish(engine, [69], greedy(100), request_id="lost"))
            await until(lambda: any(sent.ledger.is_started for sent in engine._sent.values()))
            os.kill(pid, signal.SIGSTOP)
            assert not await engine.heartbeat(0.1)
            assert len((await lost).outputs[0].token_ids) == 100, "another process went on with it"
            assert pid_of(engine) != pid

    run(scene())
    assert re.search(r"has not answered for \d s \(T \(stopped\)\), and was killed", caplog.text)


def test_a_load_without_progress_fails_with_a_message_and_a_slow_one_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.async_engine.process._POLL_S", 0.25)

    async def scene() -> None:
        async with in_process(partial(loads_for, 8.0, reports=True), hang_timeout_s=3.0, load_silence_s=6.0) as engine:
            assert engine.state is ModelState.READY
        with pytest.raises(EngineUnavailable, match="loading made no progress for"):
            async with in_process(partial(loads_for, 999.0, reports=False), hang_timeout_s=1.0, load_silence_s=1.0):
                pass

    run(scene())


def test_a_slow_reader_is_not_the_fault_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_S", "_GRACE_S", "_POLL_S"):
        monkeypatch.setattr(f"quire.async_engine.process.{name}", 0.1)

    async def scene() -> None:
        async with in_process(usual, hang_timeout_s=2.5) as engine:
            pid = pid_of(engine)
            task = asyncio.create_task(finish(engine, [1], greedy(200), request_id="a"))
            await until(lambda: engine.num_queued == 0)
            time.sleep(4)  # the event loop blocks
            assert (await task).outputs[0].finish_reason == "length"
            assert pid_of(engine) == pid

    run(scene())


def test_a_process_that_is_killed_is_started_again_and_no_exception_or_ctrl_c_ends_it() -> None:
    async def scene() -> None:
        async with in_process(treacherous) as engine:
            pid = pid_of(engine)
            drawn = SamplingParams(n=2, temperature=1.3, max_tokens=150, ignore_eos=True)  # with random seeds
            lost = asyncio.create_task(collect(engine, [69], greedy(80), request_id="lost"))  # slow
            whole = asyncio.create_task(finish(engine, [2], drawn, request_id="whole", wants_progress=False))
            waits = asyncio.create_task(finish(engine, [3], request_id="waits"))
            await until(lambda: len(engine._sent) == 3)
            await until(lambda: any(s.ledger.is_started for s in engine._sent.values() if s.add.request_id == "lost"))
            os.kill(pid, signal.SIGKILL)
            events = await lost
            kinds = [type(event) for event in events if type(event) is not Progress]
            assert kinds == [Started, Preempted, Resumed, Finished]
            assert [len(output.token_ids) for output in (await whole).outputs] == [150, 150]
            assert (await waits).outputs[0].finish_reason == "length"
            assert pid_of(engine) != pid
            undisturbed = await finish(engine, [69], greedy(80), request_id="lost")
            assert [token for delta in deltas_of(events) for token in delta.token_ids] == undisturbed.outputs[
                0
            ].token_ids
            assert "".join(delta.text for delta in deltas_of(events)) == undisturbed.outputs[0].text

            pid = pid_of(engine)
            with pytest.raises(RequestFailed, match="on purpose"):
                await finish(engine, [66], greedy(400), request_id="bad")
            await until(lambda: engine.state is ModelState.READY)
            os.kill(pid, signal.SIGINT)  # a terminal sends it to the whole group
            await finish(engine, [1], request_id="good")
            assert pid_of(engine) == pid

    run(scene())


def test_a_process_that_ends_three_times_within_a_minute_has_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene() -> None:
        engine = process_engine("tiny", partial(ends_while_it_loads, str(log)))
        engine.start()
        with pytest.raises(EngineUnavailable, match=r"3 times.*status 3"):
            await engine.wait_ready()
        engine.shutdown()

    run(scene())
    assert len(log.read_text().splitlines()) == 3


def test_a_process_that_is_killed_at_its_first_load_is_not_started_again_at_once() -> None:
    async def scene() -> None:
        engine = process_engine("tiny", is_killed_while_it_loads)
        engine.start()
        with pytest.raises(
            EngineUnavailable, match=r"SIGKILL \(.* for memory.* GiB are free.*loaded again in"
        ) as found:
            await engine.wait_ready()
        assert found.value.retry_after_s > 30
        await asyncio.to_thread(engine.shutdown)

    run(scene())


def test_a_model_that_cannot_be_loaded_says_why_and_is_not_tried_again() -> None:
    async def scene() -> None:
        engine = process_engine("tiny", refuses)
        engine.start()
        with pytest.raises(EngineUnavailable, match="no such model"):
            await engine.wait_ready()
        engine.shutdown()

    run(scene())


def test_what_cannot_be_sent_to_a_process_says_so() -> None:
    async def scene() -> None:
        engine = process_engine("tiny", lambda: usual())
        engine.start()
        with pytest.raises(EngineUnavailable, match=r"cannot be started.*pickle"):
            await engine.wait_ready()
        engine.shutdown()

    run(scene())


def test_an_event_loop_that_has_ended_does_not_keep_the_engine_from_ending() -> None:
    engine = process_engine("tiny", usual)

    async def begin() -> None:
        engine.start()
        await engine.wait_ready()

    run(begin())
    engine.shutdown()
    assert not engine._host._thread.is_alive()  # type: ignore[attr-defined]


def test_shutdown_does_not_wait_for_a_model_that_loads() -> None:
    engine = process_engine("tiny", usual)

    async def begin() -> None:
        engine.start()

    run(begin())
    engine.shutdown()
    assert not engine._host._child.is_alive()  # type: ignore[attr-defined]


PARENT = """
import asyncio, os, signal, sys
from async_engine.child_engines import usual
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.process import ProcessHost

async def main():
    engine = AsyncEngine(ProcessHost("tiny", usual))
    engine.start()
    await engine.wait_ready()
    print(engine._host._child.pid, flush=True)
    {end}

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "pass"], ids=["killed", "without a shutdown"])
def test_when_the_parent_ends_so_does_the_engine_process(end: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(end=end))
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    pid = int(done.stdout)

    def has_ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    run(until(has_ended))
