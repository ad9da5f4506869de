"""Ranks of one engine in several processes start and end together, however one of them ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from async_engine.harness import OPTIONS, TIMEOUT_S, deltas_of, finish, generate, greedy, run, until
from engines import process_engine, thread_engine
from process_pool import fork_children
from quire import LLM
from quire.assembly import start_engine
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import Event, ModelState, RequestFailed
from quire.config import EngineConfig
from quire.runner.ranks.interface import RankLost
from quire.runner.ranks.process import RankProcess

PROMPT = "Once upon a time"


def ranks_of(pid: int) -> set[int]:
    """List the rank processes of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    return {child for child in children if b"rank " in Path(f"/proc/{child}/cmdline").read_bytes()}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def one_rank() -> list[int]:
    llm = LLM("random:tiny", **OPTIONS)
    return llm.generate(PROMPT, greedy(60), use_tqdm=False)[0].outputs[0].token_ids


async def stream_and_kill(engine: AsyncEngine, rank: int) -> list[int] | str:
    """Kill a rank during a stream; return the tokens, or the error."""
    events: list[Event] = []
    try:
        async for event in generate(engine, PROMPT, greedy(60), request_id="a"):
            events.append(event)
            if len(deltas_of(events)) >= 3 and is_alive(rank):
                os.kill(rank, signal.SIGKILL)
    except RequestFailed as error:
        return str(error)
    return [token for delta in deltas_of(events) for token in delta.token_ids]


def test_a_rank_that_is_killed_ends_streams_with_its_name_and_ranks_end_with_the_engines_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_children(monkeypatch)
    expected = one_rank()
    config = EngineConfig("random:tiny", tensor_parallel_size=2, **OPTIONS)

    async def scene() -> None:
        engine = process_engine("tiny", partial(start_engine, config, is_progressive=True))
        engine.start()
        try:
            await engine.wait_ready()
            pid = engine._host._child.pid  # type: ignore[attr-defined]
            (rank,) = ranks_of(pid)
            told = await stream_and_kill(engine, rank)
            assert told == expected or "rank 1 of 2 was ended by SIGKILL" in told
            await until(lambda: engine.state is ModelState.READY, "the restart")
            assert (await finish(engine, PROMPT, greedy(60), request_id="b")).outputs[0].token_ids == expected
            (again,) = ranks_of(pid)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not is_alive(again), "the rank's end")
        finally:
            await asyncio.to_thread(engine.shutdown)

    run(scene())


@pytest.mark.slow  # processes that import torch
def test_a_rank_killed_without_requests_is_replaced_at_once() -> None:
    config = EngineConfig("random:tiny", tensor_parallel_size=2, **OPTIONS)

    async def scene() -> None:
        engine = thread_engine("tiny", partial(start_engine, config))
        engine.start()
        try:
            await engine.wait_ready()
            (rank,) = ranks_of(os.getpid())
            os.kill(rank, signal.SIGKILL)
            await until(lambda: engine.state is ModelState.LOADING, "that it was noticed")
            await engine.wait_ready()
            assert (await finish(engine, PROMPT, greedy(60), request_id="a")).outputs[0].token_ids == one_rank()
            (again,) = ranks_of(os.getpid())
        finally:
            await asyncio.to_thread(engine.shutdown)
        await until(lambda: not is_alive(again), "the rank's end")

    run(scene())


OFFLINE = """
import sys
from quire import LLM, SamplingParams
options = {"num_kv_blocks": 64, "block_size": 4, "use_tqdm": False, "device": "cpu"}
llm = LLM("random:tiny", tensor_parallel_size=int(sys.argv[1]), **options)
params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
print(llm.generate("Once upon a time", params, use_tqdm=False)[0].outputs[0].token_ids)
"""


@pytest.mark.slow  # six processes import torch
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_offline_in_processes_of_their_own(num_ranks: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # multiprocessing runs this file again in each process
    script.write_text(OFFLINE)
    done = subprocess.run([sys.executable, script, str(num_ranks)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(one_rank())


@pytest.mark.slow  # processes that import torch
def test_ctrl_c_ends_all_ranks_without_a_traceback() -> None:
    command = [sys.executable, "-m", "quire", "generate", "--model", "random:tiny", "--tensor-parallel-size", "2"]
    process = subprocess.Popen(
        [*command, "--num-kv-blocks", "400", "--max-tokens", "4000", "--ignore-eos", PROMPT],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.read(20)
    ranks = ranks_of(process.pid)
    assert len(ranks) == 1
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert not any(map(is_alive, ranks))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 3}, "4 attention heads cannot be split evenly among tensor_parallel_size=3"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size=0 must be at least 1"),
    ],
)
def test_ranks_that_cannot_share_a_model_are_refused_before_any_process_starts(
    options: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.assembly.start.start_rank_processes", None)
    with pytest.raises(ValueError, match=message):
        LLM("random:tiny", **OPTIONS, **options)


WITHOUT_GRACE = (
    "(setattr(__import__('quire.runner.ranks.guard').runner.ranks.guard, 'GRACE_S', 0), __import__('time'))[1]"
)


def test_a_rank_ends_after_a_step_that_raises_and_after_nothing_else() -> None:
    rank = RankProcess(1, 2, imports="")
    try:
        rank.build(partial(eval, WITHOUT_GRACE))  # its worker is the module time
        rank.wait_built(None)
        with pytest.raises(TypeError):
            rank.call("sleep", "soon")(None)
        rank.call("sleep", 0.2)(None)
        with pytest.raises(AttributeError):
            rank.call("execute")(None)
        with pytest.raises(RankLost, match="rank 1 of 2 ended with status 70"):
            rank.call("sleep", TIMEOUT_S)(None)
    finally:
        rank.end()
