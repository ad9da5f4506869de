"""Failover: a request of a lost engine continues on the next one, and its reader sees the same events."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from async_engine.harness import OPTIONS, TIMEOUT_S, finish, generate, greedy, idle, make, run, running
from engine.test_promotion import make_staged
from quire.async_engine.loop import EngineLoop
from quire.async_engine.messages import (
    Add,
    EngineFailed,
    EngineLost,
    Finished,
    ModelState,
    Progress,
    Report,
    Resumed,
    Started,
    StateReport,
    StepReport,
    Stop,
)
from quire.async_engine.open_requests import Ledger
from quire.engine.engine import Engine
from quire.loading.progress import load_listener
from quire.outputs import Delta, LoadProgress, OutputSoFar, RequestOutput, Resumption
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams

LETTERS = StructuredOutputsParams(regex="[ab]{24}")
SAMPLED = {"temperature": 1.5, "max_tokens": 14}
ASKED: dict[str, tuple[str, SamplingParams | BeamSearchParams]] = {
    "greedy": ("Once upon a time", greedy(16)),
    "samples that end early": ("One", SamplingParams(n=3, logprobs=2, stop_token_ids=tuple(range(40)), **SAMPLED)),
    "a seed": ("Two", SamplingParams(n=2, seed=7, top_p=0.8, **SAMPLED)),
    "penalties": ("Three", SamplingParams(repetition_penalty=1.4, frequency_penalty=0.5, **SAMPLED)),
    "min_tokens": ("Four", SamplingParams(min_tokens=9, stop_token_ids=tuple(range(0, 256, 2)), **SAMPLED)),
    "a stop string held back": ("Five", SamplingParams(structured_outputs=LETTERS, stop="aaba", **SAMPLED)),
    "a grammar": ("Six", SamplingParams(structured_outputs=LETTERS, min_tokens=9, stop="aa", **SAMPLED)),
    "reasoning": ("Six", SamplingParams(structured_outputs=replace(LETTERS, reasoning=("", "e")), n=2, **SAMPLED)),
    "a whole answer": ("Seven", SamplingParams(n=2, logprobs=1, **SAMPLED)),
    "beams": ("Eight", BeamSearchParams(beam_width=3, max_tokens=9)),
}


class Killed(Exception):
    pass


@dataclass
class Reader:
    """A client and the events it received."""

    add: Add
    ledger: Ledger
    events: list[Any] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Finished)

    @property
    def output(self) -> RequestOutput:
        return self.events[-1].output  # type: ignore[no-any-return]

    def deltas(self, index: int) -> list[Delta]:
        return [d for event in self.events if isinstance(event, Progress) for d in event.deltas if d.index == index]


class Scene:
    """Requests to engines that die at given steps, before or after computing; single-threaded for determinism."""

    def __init__(self, kills: dict[int, bool], options: dict[str, Any]) -> None:
        self.kills = kills
        self.options = options
        self.num_steps = 0
        self.num_lost = 0
        self.loop = EngineLoop("tiny", self.make_engine, self.take)
        self.readers: dict[int, Reader] = {}
        accept = make(**options).input_processor.accept
        for key, (name, (prompt, params)) in enumerate(ASKED.items()):
            whole = name == "a whole answer"
            add = Add(key, name, accept(prompt, params), 0.0, wants_progress=not whole, serial=key)
            self.readers[key] = Reader(add, Ledger(wants_progress=not whole))
            self.loop.inbox.put(add)
        self.loop.run()

    def make_engine(self) -> Engine:
        engine = make(**self.options)
        step = engine.step

        def mortal_step() -> Any:
            self.num_steps += 1
            if self.kills.get(self.num_steps) is False:
                raise Killed
            changed = step()
            engine.scheduler.check_integrity()
            if self.kills.get(self.num_steps):
                raise Killed
            return changed

        engine.step = mortal_step  # type: ignore[method-assign]
        return engine

    def take(self, report: Report) -> None:
        if isinstance(report, StepReport):
            for key, event in report.events:
                assert not isinstance(event, Exception), event
                reader = self.readers[key]
                if (shown := reader.ledger.record(event)) is not None:
                    reader.events.append(shown)
            if all(reader.is_done for reader in self.readers.values()):
                self.loop.inbox.put(Stop())
        elif isinstance(report, StateReport):
            assert report.state is not ModelState.FAILED
            if report.state is ModelState.LOADING:
                self.num_lost += 1
                for reader in self.readers.values():
                    if not reader.is_done:
                        reader.ledger.pause()
                        self.loop.inbox.put(replace(reader.add, resumption=reader.ledger.resumption()))


@cache
def undisturbed() -> dict[int, Reader]:
    return Scene({}, {}).readers


POOLS = ({}, {"num_kv_blocks": 30, "watermark": 0.0, "max_num_batched_tokens": 7}, {"enable_prefix_caching": False})


@settings(max_examples=12, deadline=None)
@example({8: True, 12: True}, POOLS[1])
@given(
    st.dictionaries(st.integers(1, 34), st.booleans(), min_size=1, max_size=2),
    st.sampled_from(POOLS),
)
def test_whatever_an_engine_is_lost_at_readers_get_the_tokens_of_an_undisturbed_run(
    kills: dict[int, bool], options: dict[str, Any]
) -> None:
    scene = Scene(kills, options)
    for (name, (_, params)), ours, theirs in zip(
        ASKED.items(), scene.readers.values(), undisturbed().values(), strict=True
    ):
        assert [type(event) for event in ours.events if isinstance(event, (Started, Finished))] == [Started, Finished]
        assert sum(isinstance(event, Resumed) for event in ours.events) <= scene.num_lost
        found, expected = ours.output, theirs.output
        assert [o.token_ids for o in found.outputs] == [o.token_ids for o in expected.outputs], name
        for output, wanted in zip(found.outputs, expected.outputs, strict=True):
            assert (output.text, output.finish_reason, output.stop_reason) == (
                wanted.text, wanted.finish_reason, wanted.stop_reason,
            )  # fmt: skip
            assert (output.logprobs is None) == (wanted.logprobs is None)
            if output.logprobs is not None:
                assert [list(entry) for entry in output.logprobs] == [list(entry) for entry in wanted.logprobs or ()]
                assert abs((output.cumulative_logprob or 0) - (wanted.cumulative_logprob or 0)) < 1e-3
            if name == "a whole answer" or isinstance(params, BeamSearchParams):
                assert not ours.deltas(output.index)
                continue
            deltas = ours.deltas(output.index)
            assert "".join(delta.text for delta in deltas) == output.text
            assert [token for delta in deltas for token in delta.token_ids] == output.token_ids, "each is told once"
            assert sum(len(delta.logprobs or ()) for delta in deltas) == len(output.logprobs or ())
            assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [output.finish_reason]


def test_the_scenes_of_this_file_tell_something() -> None:
    readers = dict(zip(ASKED, undisturbed().values(), strict=True))
    ends = [len(output.token_ids) for output in readers["samples that end early"].output.outputs]
    assert len(set(ends)) > 1, "some samples are done while others go on"
    assert readers["a stop string held back"].output.outputs[0].stop_reason == "aaba"
    assert any(not delta.text for delta in readers["a stop string held back"].deltas(0)[:-1]), "some text is held back"
    assert OPTIONS["num_kv_blocks"] > POOLS[1]["num_kv_blocks"]


def test_a_stream_fails_if_no_engine_is_back_in_time() -> None:
    may_load, has_begun = threading.Event(), threading.Event()
    may_load.set()
    ended: list[RequestOutput] = []

    def load() -> Engine:
        assert may_load.wait(TIMEOUT_S)
        engine = make()
        usual = engine.scheduler.update

        def update(result: Any) -> Any:
            if has_begun.is_set():
                raise Killed
            return usual(result)

        engine.scheduler.update = update  # type: ignore[method-assign]
        return engine

    async def scene() -> None:
        async with running(load, load_wait_s=0.2, on_finished=ended.append) as engine:
            may_load.clear()
            stream = generate(engine, "x", greedy(200), request_id="a")
            await anext(stream)
            has_begun.set()
            with pytest.raises(EngineLost, match=r"not there again after 0.2 s: Killed"):
                async for _ in stream:
                    pass
            assert not engine._sent
            has_begun.clear()
            may_load.set()
            assert (await finish(engine, "y", request_id="b")).outputs[0].finish_reason == "length"
            await idle(engine)

    run(scene())
    assert [output.request_id for output in ended] == ["a", "b"], "the next engine does not report it again"


def test_a_stream_fails_if_its_stage_is_gone() -> None:
    made: list[Engine] = []

    def load() -> Engine:
        engine, arrivals = make_staged(first=1 if made else 2, num_kv_blocks=64)
        progress = LoadProgress(arrivals.stage_ready, 3, 60, 100, error=None if not made else "no such device")
        load_listener.get()(progress)
        made.append(engine)
        return engine

    def fail(result: Any) -> Any:
        raise Killed

    async def scene() -> None:
        async with running(load, load_wait_s=0.5) as engine:
            stream = generate(engine, [1, 2, 3], greedy(200), request_id="a", wants_progress=False)
            await anext(stream)
            made[0].scheduler.update = fail  # type: ignore[method-assign]
            with pytest.raises(EngineLost, match=r"stage 2 of the model.* not there again after 0.5 s: no such device"):
                async for _ in stream:
                    pass
            assert len(made) == 2
            assert (await finish(engine, [4], request_id="b")).stages == [(1, 8)]
            await idle(engine)

    run(scene())


def test_what_is_asked_after_a_restart_is_not_drawn_as_what_was_asked_before_it() -> None:
    async def scene() -> None:
        async with running() as engine:
            tokens = []
            for request_id in "ab":
                output = await finish(engine, "x", SamplingParams(**SAMPLED), request_id=request_id)
                tokens.append(output.outputs[0].token_ids)
                engine._host.send(EngineFailed(1, "the device is gone"))
            assert tokens[0] != tokens[1]
            await idle(engine)

    run(scene())


def test_what_cannot_be_resumed_is_refused_and_what_has_ended_needs_nothing() -> None:
    engine = make()
    accept = engine.input_processor.accept
    done = OutputSoFar([5, 6, 7], finish_reason="stop", stop_reason=7)
    state = engine.add(accept("x", greedy(8, n=2)), resumption=Resumption(1, (done, done)))
    assert state.is_finished
    assert [output.token_ids for output in state.to_output().outputs] == [[5, 6, 7]] * 2
    assert not engine.has_unfinished()
    for params, outputs in (
        (greedy(8, n=2), (OutputSoFar([5]),)),
        (greedy(8), (OutputSoFar([5] * 8),)),
        (greedy(8, prompt_logprobs=1), (OutputSoFar([5]),)),
        (BeamSearchParams(beam_width=1, max_tokens=8), (OutputSoFar([5]),)),
    ):
        with pytest.raises(ValueError, match="resumed"):
            engine.add(accept("x", params), resumption=Resumption(1, outputs))
    assert not engine.has_unfinished()
