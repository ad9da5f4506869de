"""A request that ends every engine costs others one restart and no token: it is tried again alone, and then fails."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import Any

import pytest

from async_engine.child_engines import poisoned
from async_engine.harness import finish, greedy, run, until
from async_engine.test_process import in_process, pid_of
from process_pool import fork_children
from quire.async_engine.messages import ModelState, PoisonRequest
from quire.async_engine.open_requests import OpenRequest
from quire.sampling_params import SamplingParams

DRAWN = SamplingParams(n=2, temperature=1.3, seed=3, max_tokens=40, ignore_eos=True)
#: Request id -> prompt, parameters, whether it is a stream. "late" waits for a place.
HONEST: dict[str, tuple[list[int], SamplingParams, bool]] = {
    "stream": ([1, 2, 3], greedy(60), True),
    "drawn": ([4, 5], DRAWN, True),
    "whole": ([6], greedy(60), False),
    **{f"late {number}": ([7, number], greedy(12), number % 2 == 0) for number in range(8)},
}


@pytest.fixture(autouse=True)
def _imports_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)


async def ask(engine: Any, names: list[str]) -> dict[str, list[list[int]]]:
    async def tokens(name: str) -> list[list[int]]:
        prompt, params, is_stream = HONEST[name]
        output = await finish(engine, prompt, params, request_id=name, wants_progress=is_stream)
        return [each.token_ids for each in output.outputs]

    return dict(zip(names, await asyncio.gather(*map(tokens, names)), strict=True))


@pytest.mark.parametrize(("token", "streams"), [(67, True), (68, True), (68, False)], ids=["hangs", "ends", "whole"])
def test_neighbours_of_a_request_that_ends_every_engine_lose_one_engine_and_no_token(
    token: int, streams: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "quire")
    lives: dict[str, set[int]] = {}  #: process ids of the engines that had each request
    starts: list[int] = []

    async def scene() -> None:
        async with in_process(poisoned, hang_timeout_s=3.0) as engine:
            undisturbed = await ask(engine, list(HONEST))
            mark = engine._sent.mark_scheduled

            def note(keys: list[int]) -> None:
                for key in keys:
                    if (request := engine._sent.get(key)) is not None:
                        lives.setdefault(request.add.request_id, set()).add(pid_of(engine))
                mark(keys)

            monkeypatch.setattr(engine._sent, "mark_scheduled", note)
            starts.append(pid_of(engine))
            asked = asyncio.create_task(ask(engine, list(HONEST)))
            await until(lambda: len(engine._sent) == len(HONEST))
            with pytest.raises(PoisonRequest, match=r"failed 2 times.*engine process ended with status"):
                await finish(engine, [token], greedy(50), request_id="bad", wants_progress=streams)
            assert await asked == undisturbed
            await until(lambda: engine.state is ModelState.READY)
            starts.append(pid_of(engine))

    run(scene())
    bad = lives.pop("bad")
    assert len(bad) == 2
    (alone,) = bad - {starts[0]}
    assert len([line for line in caplog.messages if line.startswith("tiny: ready")]) == 3
    shared = {name for name, pids in lives.items() if alone in pids}
    assert shared <= {"stream", "drawn", "whole"}, "others that run beside it were tried before it, alone"
    if token == 67:
        assert re.search(r"a step has not ended for 3.0 s, in .*decode of .*bad", caplog.text)
    assert re.search(r"in the step of the lost engine: .*bad", caplog.text)


def test_a_killed_engine_costs_many_requests_a_few_steps_alone_and_no_token() -> None:
    async def scene() -> None:
        async with in_process(poisoned) as engine:
            undisturbed = await ask(engine, list(HONEST))
            asked = asyncio.create_task(ask(engine, list(HONEST)))
            await until(lambda: sum(each.ledger.has_outputs for each in engine._sent.values()) >= 2)
            os.kill(pid_of(engine), signal.SIGKILL)
            await until(lambda: engine.state is ModelState.LOADING)
            added = asyncio.create_task(finish(engine, [9], greedy(5), request_id="new"))
            assert await asked == undisturbed
            assert len((await added).outputs[0].token_ids) == 5

    run(scene())


def test_a_suspect_whose_reader_leaves_while_it_hangs_is_not_followed_by_another_one() -> None:
    async def scene() -> None:
        async with in_process(poisoned, hang_timeout_s=100.0) as engine:
            asked = asyncio.create_task(ask(engine, ["stream", "drawn"]))
            bad = asyncio.create_task(finish(engine, [67], greedy(50), request_id="bad"))
            waits = asyncio.create_task(finish(engine, [9], greedy(5), request_id="waits"))
            started = lambda each: each.is_scheduled and each.ledger.has_outputs  # noqa: E731
            await until(lambda: any(each.add.request_id == "bad" and started(each) for each in engine._sent.values()))
            await asyncio.sleep(0.5)  # it hangs
            os.kill(pid_of(engine), signal.SIGKILL)

            def alone() -> OpenRequest | None:
                return engine._failover._alone

            await until(lambda: (each := alone()) is not None and each.add.request_id == "bad")
            await until(lambda: (each := alone()) is not None and each.is_scheduled)
            await asyncio.sleep(0.5)  # it hangs again
            bad.cancel()
            await asyncio.sleep(0.1)
            os.kill(pid_of(engine), signal.SIGKILL)
            assert {name: len(tokens) for name, tokens in (await asked).items()} == {"stream": 1, "drawn": 2}
            assert len((await waits).outputs[0].token_ids) == 5

    run(scene())
