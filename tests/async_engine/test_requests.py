"""Events of a request, and its fate when the reader leaves."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from async_engine.harness import (
    TIMEOUT_S,
    Gate,
    check_nothing_leaks,
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
from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import Finished, Preempted, Progress, QueueFull, Resumed, Started
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.tiers.store.offline import list_namespaces


def offline(prompt: Any, params: Any, **options: Any) -> RequestOutput:
    engine = make(**options)
    answer = engine.add_request(prompt, params)
    while engine.has_unfinished():
        engine.step()
    return answer.to_output()


def test_an_output_says_where_the_prompt_came_from_and_what_computing_the_rest_took() -> None:
    async def scene() -> None:
        async with running() as engine:
            first = await finish(engine, list(range(40)), greedy(20), request_id="a")
            again = await finish(engine, list(range(40)), greedy(4), request_id="b")
            assert first.sources == [("computed", 40)]
            assert again.sources == [("device", 36), ("computed", 4)]
            assert first.metrics is not None
            assert again.metrics is not None
            assert first.metrics.missed_s is not None, "20 steps have calibrated the cost model"
            assert again.metrics.missed_s is not None
            assert again.metrics.missed_s > 0

    run(scene())


def make_with_own_request() -> Any:
    engine = make()
    engine.add_request([5, 6, 7], greedy(4))  # as a pinned prefix adds it at a promotion
    return engine


def test_a_request_of_the_engine_itself_is_reported_to_no_client() -> None:
    async def scene() -> None:
        async with running(make_with_own_request) as engine:
            output = await finish(engine, [1, 2, 3], greedy(8), request_id="a")
            assert output.outputs[0].token_ids == offline([1, 2, 3], greedy(8)).outputs[0].token_ids
            await idle(engine)

    run(scene())


# -- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        greedy(12),
        greedy(1),
        SamplingParams(n=3, max_tokens=9, seed=1, logprobs=2),
        SamplingParams(max_tokens=30, seed=5, stop=["4", "]", "[3"]),
        greedy(6, detokenize=False),
    ],
    ids=["greedy", "one token", "three samples", "stop strings", "no text"],
)
def test_the_deltas_of_a_request_make_up_its_output_which_is_that_of_the_offline_engine(params: Any) -> None:
    async def scene() -> None:
        async with running() as engine:
            events = await collect(engine, "Once upon a time", params, request_id="a")
            assert events[0] == Started(list(b"Once upon a time"), {}, seed=events[0].seed)
            assert {type(event) for event in events[1:-1]} == {Progress}
            assert isinstance(events[-1], Finished)
            output = events[-1].output
            assert output.request_id == "a"
            assert output.prompt == "Once upon a time"
            for expected, found in zip(offline("Once upon a time", params).outputs, output.outputs, strict=True):
                deltas = deltas_of(events, found.index)
                assert found == expected
                assert "".join(delta.text for delta in deltas) == found.text
                assert [token for delta in deltas for token in delta.token_ids] == found.token_ids
                if params.logprobs is not None:
                    assert [entry for delta in deltas for entry in delta.logprobs or ()] == found.logprobs
                assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
                assert (deltas[-1].finish_reason, deltas[-1].stop_reason) == (found.finish_reason, found.stop_reason)
            await idle(engine)

    run(scene())


@pytest.mark.parametrize(("params", "wants_progress"), [(greedy(), False), (BeamSearchParams(2, 6), True)])
def test_without_progress_there_are_only_a_start_and_an_end(params: Any, wants_progress: bool) -> None:
    async def scene() -> None:
        async with running() as engine:
            events = await collect(engine, [1, 2, 3], params, request_id="a", wants_progress=wants_progress)
            assert [type(event) for event in events] == [Started, Finished]
            assert events[1].output.outputs == offline([1, 2, 3], params).outputs

    run(scene())


def test_the_second_request_with_a_prompt_finds_it_cached() -> None:
    async def scene() -> None:
        async with running() as engine:
            prompt = list(range(1, 14))
            await finish(engine, prompt, request_id="a")
            events = await collect(engine, Prompt("text", prompt), request_id="a")
            assert events[0] == Started(prompt, {"device": 12}, seed=events[0].seed)
            assert events[-1].output.prompt == "text"

    run(scene())


def test_requests_of_one_event_loop_are_batched_and_do_not_change_each_other() -> None:
    async def scene() -> None:
        async with running() as engine:
            prompts = [f"number {i}" for i in range(12)]
            outputs = await asyncio.gather(
                *(finish(engine, prompt, greedy(4 + i % 5), request_id=prompt) for i, prompt in enumerate(prompts))
            )
            for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
                assert output.outputs == offline(prompt, greedy(4 + i % 5)).outputs
            await idle(engine)

    run(scene())


def test_several_event_loops_share_one_engine() -> None:
    engine = thread_engine("tiny", make)
    engine.start()
    found: dict[int, RequestOutput] = {}

    def reader(number: int) -> None:
        async def scene() -> None:
            await engine.wait_ready()
            assert await engine.heartbeat(60)
            found[number] = await finish(engine, f"loop {number}", request_id=str(number))

        run(scene())

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert found[number].outputs == offline(f"loop {number}", greedy()).outputs
    run(idle(engine))
    engine.shutdown()


def test_a_preempted_request_gets_events_of_preemption_and_resumption() -> None:
    async def scene() -> None:
        async with running(partial(make, num_kv_blocks=12, watermark=0)) as engine:
            told = await asyncio.gather(
                *(collect(engine, [i, 2, 3, 4, 5], greedy(24), request_id=str(i)) for i in range(4))
            )
            for i, events in enumerate(told):
                is_away = False
                for event in events:
                    if isinstance(event, (Preempted, Resumed)):
                        assert is_away is isinstance(event, Resumed), "they come in turns"
                        is_away = not is_away
                    assert not (is_away and isinstance(event, (Progress, Finished)))
                assert events[-1].output.outputs == offline([i, 2, 3, 4, 5], greedy(24)).outputs
            assert any(isinstance(event, Preempted) for events in told for event in events), "no request was preempted"
            await idle(engine)

    run(scene())


def test_a_reader_that_is_slower_than_the_engine_gets_fewer_and_larger_events() -> None:
    async def scene() -> None:
        async with running(partial(make, num_kv_blocks=100)) as engine:
            params = SamplingParams(n=2, max_tokens=150, seed=1, ignore_eos=True, logprobs=1)
            stream = EventStream()
            await engine.submit(stream, "slow", params, request_id="a")
            await until(lambda: engine.engine.last_stats is not None, "the first step")
            await until(lambda: not engine.engine.has_unfinished(), "the end, for which no reader is waited")
            await finish(engine, "later", request_id="b")  # whose events follow those of the first
            events = [event for _, event in await stream.read()]
            assert [type(event) for event in events] == [Started, Progress, Finished]
            assert [delta.index for delta in events[1].deltas] == [0, 1]
            for delta, output in zip(events[1].deltas, events[2].output.outputs, strict=True):
                assert (delta.text, delta.token_ids, delta.logprobs) == (output.text, output.token_ids, output.logprobs)
                assert delta.finish_reason == output.finish_reason == "length"

    run(scene())


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], None, "empty"),
        ([1] * 500, None, "max_model_len"),
        ([9999], None, "9999"),
        ([1], SamplingParams(n=65), "max_num_seqs"),
        ([1], {"temperature": 0}, "SamplingParams"),
        ("bad \ud800 text", None, "Unicode"),
    ],
)
def test_what_can_never_be_served_is_refused_before_its_first_event(prompt: Any, params: Any, message: str) -> None:
    async def scene() -> None:
        async with running() as engine:
            with pytest.raises(ValueError, match=message):
                await anext(generate(engine, prompt, params, request_id="a"))
            await finish(engine, "good", request_id="a")
            await idle(engine)

    run(scene())


def test_an_id_in_use_is_refused_and_free_again_the_moment_its_reader_leaves() -> None:
    async def scene() -> None:
        async with running() as engine:
            first = generate(engine, "first", greedy(200), request_id="a")
            await anext(first)
            with pytest.raises(ValueError, match="in use"):
                await finish(engine, "second", request_id="a")
            await first.aclose()
            # The second request gets nothing from the first, which the engine may still be running.
            output = await finish(engine, "third", request_id="a")
            assert output.outputs == offline("third", greedy()).outputs
            await idle(engine)

    run(scene())


def test_more_requests_than_may_wait_are_refused() -> None:
    async def scene() -> None:
        async with running(partial(make, max_num_seqs=1), max_queue=2) as engine:
            gate = Gate(engine.engine)
            first = asyncio.create_task(finish(engine, "1", request_id="1"))
            await gate.wait()
            assert engine.num_queued == 1  # before it learns of its schedule
            second = asyncio.create_task(finish(engine, "2", request_id="2"))
            await until(lambda: engine.num_queued == 2)
            with pytest.raises(QueueFull, match="2 requests wait"):
                await finish(engine, "3", request_id="3")
            gate.open()
            await asyncio.gather(first, second)
            await finish(engine, "3", request_id="3")
            await idle(engine)

    run(scene())


# -- readers that leave ----------------------------------------------------------------------------------------------


async def leave_by_closing(streams: list[Any]) -> None:
    await streams.pop().aclose()


async def leave_by_forgetting(streams: list[Any]) -> None:
    streams.clear()
    gc.collect()
    for _ in range(3):  # asyncio closes it in a task
        await asyncio.sleep(0)


async def leave_by_cancellation(streams: list[Any]) -> None:
    async def read() -> None:
        async for _ in streams[0]:
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_by_error(streams: list[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        await streams.pop().athrow(ZeroDivisionError)


@pytest.mark.parametrize("wants_progress", [True, False])
@pytest.mark.parametrize("leave", [leave_by_closing, leave_by_forgetting, leave_by_cancellation, leave_by_error])
def test_a_reader_that_leaves_frees_its_blocks_within_one_step(leave: Callable[..., Any], wants_progress: bool) -> None:
    ended: list[RequestOutput] = []

    async def scene() -> None:
        async with running(on_finished=ended.append) as engine:
            gate = Gate(engine.engine)
            stays = asyncio.create_task(finish(engine, "stays", greedy(20), request_id="stays"))
            await gate.wait()
            streams = [generate(engine, "goes", greedy(100), request_id="goes", wants_progress=wants_progress)]
            first = asyncio.ensure_future(anext(streams[0]))
            await until(lambda: engine.num_queued == 2)
            await gate.let_pass()
            await gate.let_pass()
            assert isinstance(await first, Started)
            del first
            assert gate.steps[-1] == {"stays", "goes"}
            await leave(streams)
            await gate.let_pass()
            assert gate.steps[-1] == {"stays"}
            gate.open()
            assert (await stays).outputs == offline("stays", greedy(20)).outputs
            await idle(engine)

    run(scene())
    assert sorted((output.request_id, output.outputs[0].finish_reason) for output in ended) == [
        ("goes", "abort"),
        ("stays", "length"),
    ]


def test_a_reader_that_leaves_before_the_engine_thread_has_looked_leaves_nothing_behind() -> None:
    ended: list[RequestOutput] = []

    async def scene() -> None:
        async with running(on_finished=ended.append) as engine:
            gate = Gate(engine.engine)
            stays = asyncio.create_task(finish(engine, "stays", request_id="stays"))
            await gate.wait()
            tasks = [asyncio.create_task(finish(engine, "goes", request_id=f"goes {i}")) for i in range(100)]
            await until(lambda: engine.num_queued == 101)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert engine.num_queued == 1
            gate.open()
            await stays
            await idle(engine)

    run(scene())
    assert len(ended) == 101, "each ends once"


def test_a_reader_that_leaves_while_its_prompt_is_encoded_sends_nothing() -> None:
    async def scene() -> None:
        async with running() as engine:
            task = asyncio.create_task(finish(engine, "x" * 50, request_id="a"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await idle(engine)
            assert engine.engine.last_stats is None

    run(scene())


def test_an_event_loop_that_closes_under_its_readers_takes_their_requests_along() -> None:
    engine = thread_engine("tiny", make)
    engine.start()
    run(engine.wait_ready())
    gate = Gate(engine.engine)
    loop = asyncio.new_event_loop()
    stream = generate(engine, "goes", greedy(200), request_id="a")
    task = loop.create_task(anext(stream))
    loop.run_until_complete(gate.wait())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()  # regardless of its content
    gate.open()
    run(idle(engine))
    engine.shutdown()


@pytest.mark.parametrize("seed", range(3))
def test_requests_cancelled_at_any_moment_leave_no_block_behind(seed: int) -> None:
    ended: list[RequestOutput] = []

    async def scene() -> None:
        dice = random.Random(seed)
        make_small = partial(make, num_kv_blocks=24, max_num_seqs=6, watermark=0)
        async with running(make_small, on_finished=ended.append) as engine:

            async def client(number: int) -> str:
                prompt = [dice.randrange(200) for _ in range(dice.randrange(1, 30))] if number % 2 else "shared " * 3
                params = SamplingParams(n=dice.choice([1, 1, 2]), max_tokens=dice.randrange(1, 20), seed=number)
                await asyncio.sleep(dice.random() * 0.2)
                output = await finish(
                    engine, prompt, params, request_id=str(number), wants_progress=dice.random() < 0.7
                )
                return output.outputs[0].finish_reason or "nothing"

            tasks = [asyncio.create_task(client(number)) for number in range(80)]
            for task in dice.sample(tasks, 40):
                asyncio.get_running_loop().call_later(dice.random() * 0.6, task.cancel)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            finished = [result for result in results if not isinstance(result, asyncio.CancelledError)]
            assert 40 <= len(finished) < 80
            assert set(finished) <= {"stop", "length"}
            await idle(engine)
            check_nothing_leaks(engine)

    run(scene())
    assert 40 <= len({output.request_id for output in ended}) == len(ended), "each ends once"


# -- the forecast ----------------------------------------------------------------------------------------------------


def test_a_forecast_counts_what_was_sent_before_the_engine_tells_of_it() -> None:
    async def scene() -> None:
        async with running(partial(make, max_num_seqs=1)) as engine:
            assert engine.forecast is not None
            assert (engine.forecast.num_running, engine.forecast.num_sent) == (0, 0)
            alone = engine.forecast.predict(12).ttft_s
            gate = Gate(engine.engine)
            first = asyncio.create_task(finish(engine, [9] * 12, request_id="0"))
            await gate.wait()
            answers = [first, *(asyncio.create_task(finish(engine, [9] * 12, request_id=i)) for i in "12")]
            await until(lambda: engine.num_requests == 3, "all three")
            assert (engine.forecast.num_sent, engine.forecast.sent_tokens) == (3, 36)
            assert engine.forecast.predict(12).ttft_s > alone
            await gate.let_pass()
            await gate.let_pass()
            told = engine.forecast
            assert (told.num_sent, told.num_running + told.num_waiting) == (0, 3)
            gate.open()
            await asyncio.gather(*answers)
            assert engine.forecast.num_running + engine.forecast.num_waiting + engine.forecast.num_sent == 0
            assert engine.forecast.answer_tokens < 20, "answers have 8 tokens"
        assert engine.forecast is None

    run(scene())


def test_slow_texts_of_one_model_delay_no_other_model() -> None:
    async def scene() -> None:
        async with running() as slow, running() as other:
            is_over = threading.Event()
            stuck = [asyncio.create_task(slow.in_thread("a", is_over.wait, TIMEOUT_S)) for _ in range(100)]
            try:
                assert await other.in_thread("a", len, "abc") == 3
                assert len((await finish(other, [1], request_id="a")).outputs[0].token_ids) > 0
            finally:
                is_over.set()
                await asyncio.gather(*stuck)

    run(scene())


def test_a_tenants_texts_wait_for_few_texts_of_another_tenant() -> None:
    """Texts are rendered and encoded in turn: a flood of one key's texts must not hold up all others."""

    async def scene() -> None:
        async with running(make) as engine:
            gate, order = threading.Event(), list[str]()

            def work(owner: str) -> None:
                gate.wait(TIMEOUT_S)
                order.append(owner)

            flood = [asyncio.ensure_future(engine.in_thread("many", work, "many")) for _ in range(50)]
            await asyncio.sleep(0)  # all of them are queued first
            few = asyncio.ensure_future(engine.in_thread("few", work, "few"))
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(few, *flood)
            assert order.index("few") < 10

    run(scene())


def test_an_engine_that_stops_right_after_an_answer_has_kept_its_kv(tmp_path: Path) -> None:
    options = {"kv_dir": str(tmp_path / "kv"), "kv_dir_keep_prompts": True}

    async def scene() -> None:
        async with running(lambda: make(**options)) as engine:
            await finish(engine, list(range(1, 200)), greedy(5), request_id="one")

    run(scene())
    (stats,) = list_namespaces(tmp_path / "kv")
    assert stats.num_blocks == 203 // 4
