"""Failures are isolated: the affected request ends with a reason, and all others get the right tokens."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine.harness import (
    PROMPTS,
    Job,
    assert_all_greedy,
    assert_same_tokens,
    check_books,
    drive,
    greedy,
    greedy_params,
    make_llm,
    model_of,
    outputs,
    random_ids,
)
from parameters import quick
from quire import LLM, BeamSearchParams, SamplingParams
from quire.ops.arrays import is_finite

NAME = "llama"


class Wrapped:
    """The model, with hooks before it computes and after its logits."""

    def __init__(self, model: Any, before: Callable[[np.ndarray], None], after: Callable[[Any], Any]) -> None:
        self.model, self.before, self.after = model, before, after

    def __call__(self, input_ids: np.ndarray, positions: np.ndarray, attend: Any, **more: Any) -> Any:
        self.before(input_ids)
        return self.model(input_ids, positions, attend, **more)

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return self.after(self.model.compute_logits(hidden))

    def take_waited_s(self) -> float:
        return 0.0


def wrap(before: Callable[[np.ndarray], Any] = lambda ids: None, after: Callable[[Any], Any] = lambda x: x) -> Any:
    return lambda model: Wrapped(model, before, after)


class Poisoned:
    """The model with one token that turns everything it touches into NaN: its K and V, and all that attend to it."""

    def __init__(self, model: Any, poison: int) -> None:
        self.model = model
        self.poison = poison

    def __call__(self, input_ids: np.ndarray, positions: np.ndarray, attend: Any, **more: Any) -> Any:
        is_bad = input_ids == self.poison

        def attend_badly(layer_index: int, q: Any, k: Any, v: Any) -> Any:
            k, v = deepcopy(k), deepcopy(v)
            k[is_bad] = v[is_bad] = np.nan
            return attend(layer_index, q, k, v)

        return self.model(input_ids, positions, attend_badly, **more)

    def compute_logits(self, hidden: np.ndarray) -> np.ndarray:
        return self.model.compute_logits(hidden)

    def take_waited_s(self) -> float:
        return 0.0


# -- not numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("params", [greedy_params(), SamplingParams(n=3, max_tokens=20), BeamSearchParams(3, 20)])
def test_logits_that_are_not_numbers_fail_their_request_only(bad: float, params: Any) -> None:
    llm = make_llm(NAME, block_size=4)
    num_calls = 0

    def corrupt(logits: np.ndarray) -> np.ndarray:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 5:
            logits = deepcopy(logits)
            logits[1 if len(logits) > 1 else 0] = bad  # a row of the second request
        return logits

    jobs = [Job(PROMPTS[2]), Job(PROMPTS[4], params), Job(PROMPTS[3])]
    with model_of(llm, wrap(after=corrupt)):
        drive(llm, jobs)
    assert jobs[1].output.error is not None
    assert "not numbers" in jobs[1].output.error
    assert {output.finish_reason for output in jobs[1].output.outputs} <= {"error"}
    assert_all_greedy(NAME, [jobs[0], jobs[2]])
    # No block of the failed request is found again.
    again = drive(llm, [Job(PROMPTS[4])])[0]
    assert again.output.num_cached_tokens == 0
    assert_all_greedy(NAME, [again])


@pytest.mark.parametrize(
    ("name", "budget"), quick([("llama", 7), ("gpt2", 64)], product(["llama", "gpt2"], [3, 7, 64]))
)
def test_a_cache_that_is_not_numbers_reaches_no_other_request(name: str, budget: int) -> None:
    # So few blocks that others soon reuse those of the failed request.
    llm = make_llm(name, block_size=4, num_kv_blocks=18, max_num_batched_tokens=budget, watermark=0)
    prefix = tuple(random_ids(14, 999))
    harmless = {token for prompt in (*PROMPTS, prefix) for token in (*prompt, *greedy(name, prompt).token_ids)}
    poison = min(set(range(256)) - harmless)
    bad_prompt = [*prefix[:9], poison, *prefix[10:]]
    with model_of(llm, lambda model: Poisoned(model, poison)):
        jobs = [Job(PROMPTS[3], greedy_params(10)), Job(bad_prompt, greedy_params(10)), Job(PROMPTS[5])]
        # One begins with blocks of the failed request, which are not found any more.
        jobs += [Job(prompt, greedy_params(10), arrival=12 + i) for i, prompt in enumerate((prefix, *PROMPTS))]
        drive(llm, jobs)
        assert jobs[1].output.error is not None
        assert_all_greedy(name, [jobs[0], *jobs[2:]])
        # Aborted during its prompt, its failure was never noticed; its NaN must not spread either.
        jobs = drive(llm, [Job(bad_prompt, greedy_params(10), abort_at=4)])
        assert_all_greedy(name, drive(llm, [Job(prompt, greedy_params(8)) for prompt in PROMPTS]))
        cache = llm.engine.runner.cache.blocks
        pool = llm.engine.scheduler.kv.pool
        for prompt in PROMPTS:
            for block in cached_blocks(llm, prompt):
                assert pool.ref_counts[block] == 0
                assert is_finite(cache[block]), "a cached block is not numbers"


def cached_blocks(llm: LLM, prompt: tuple[int, ...]) -> list[int]:
    answer = llm.engine.add_request(list(prompt), greedy_params(1))
    blocks = llm.engine.scheduler.kv.find_prefix(answer.request.sequences[0])
    llm.engine.abort(answer.request.request_id)
    return blocks


def test_a_request_whose_every_token_is_banned_fails_alone() -> None:
    llm = make_llm(NAME)
    nothing = SamplingParams(allowed_token_ids=(5,), bad_words_token_ids=((5,),))
    jobs = drive(llm, [Job(PROMPTS[2]), Job(PROMPTS[3], nothing)])
    assert "banned" in (jobs[1].output.error or "")
    assert_all_greedy(NAME, jobs[:1])


# -- a step that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "place", "at"),
    quick(
        [
            ("llama", "before the model", 1),
            ("gpt2", "before the model", 9),
            ("gpt2", "after it", 2),
            ("llama", "after it", 5),
        ],
        product(["llama", "gpt2"], ["before the model", "after it"], [1, 2, 5, 9]),
    ),
)
def test_a_step_that_raises_ends_its_requests_and_the_engine_goes_on(name: str, at: int, place: str) -> None:
    llm = make_llm(name, block_size=4, max_num_batched_tokens=16)
    num_calls = 0

    def fail(x: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == at:
            raise RuntimeError("out of luck")
        return x

    wrapper = wrap(before=fail) if place == "before the model" else wrap(after=fail)
    jobs = [Job(prompt, greedy_params(8), arrival=i) for i, prompt in enumerate(PROMPTS)]
    jobs.insert(2, Job(PROMPTS[1], BeamSearchParams(2, 8), arrival=1))
    with model_of(llm, wrapper):
        drive(llm, jobs)
    failed = [job for job in jobs if job.output.error is not None]
    assert failed
    assert len(failed) < len(jobs)
    for job in failed:
        assert "out of luck" in (job.output.error or "")
        assert all(output.finish_reason in ("error", "length", "stop") for output in job.output.outputs)
    assert_all_greedy(name, [job for job in jobs if job not in failed and isinstance(job.params, SamplingParams)])
    later = drive(llm, [Job(prompt, greedy_params(8)) for prompt in PROMPTS])
    assert_all_greedy(name, later)


def test_a_failed_step_is_raised_by_generate() -> None:
    llm = make_llm(NAME)

    def fail(x: Any) -> Any:
        raise RuntimeError("out of luck")

    with model_of(llm, wrap(before=fail)), pytest.raises(RuntimeError, match="out of luck"):
        llm.generate({"prompt_token_ids": [1, 2]}, use_tqdm=False)
    check_books(llm)
    assert not llm.engine.has_unfinished()
    assert_all_greedy(NAME, drive(llm, [Job(PROMPTS[2])]))


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 3, 8])
def test_an_interrupt_inside_a_step_leaves_the_llm_usable(at: int) -> None:
    llm = make_llm(NAME, block_size=4, max_num_batched_tokens=16)
    num_calls = 0

    def interrupt(x: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == at:
            raise KeyboardInterrupt
        return x

    prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
    with model_of(llm, wrap(before=interrupt)), pytest.raises(KeyboardInterrupt):
        llm.generate(prompts, greedy_params(), use_tqdm=False)
    assert not llm.engine.has_unfinished()
    check_books(llm)
    for prompt, output in zip(PROMPTS, llm.generate(prompts, greedy_params(), use_tqdm=False), strict=True):
        assert_same_tokens(NAME, prompt, output.outputs[0].token_ids)


@pytest.fixture
def _no_gc() -> Iterator[None]:
    """Collect no garbage: a signal during a callback of the collector, as Hypothesis has one, is lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_gc")
def test_a_signal_at_any_moment_leaves_the_llm_usable() -> None:
    """Signals between any two instructions: in the scheduler, the runner, and the detokenizer."""
    llm = make_llm(NAME, block_size=4, max_num_batched_tokens=16)
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
    num_interrupted = 0
    for i in range(60):
        try:
            timer = threading.Timer(0.0007 * i, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            while True:
                llm.generate(prompts, greedy_params(6), use_tqdm=False)
        except KeyboardInterrupt:
            num_interrupted += 1
        assert not llm.engine.has_unfinished()
        check_books(llm)
    assert num_interrupted == 60
    for prompt, output in zip(PROMPTS, llm.generate(prompts, greedy_params(), use_tqdm=False), strict=True):
        assert_same_tokens(NAME, prompt, output.outputs[0].token_ids)


# -- aborts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [greedy_params(), SamplingParams(n=3, max_tokens=20, ignore_eos=True)])
@pytest.mark.parametrize("moment", range(0, 16, 3))
def test_abort_in_every_state(params: SamplingParams, moment: int) -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=24, max_num_batched_tokens=8, watermark=0)
    jobs = [Job(PROMPTS[4], greedy_params(12)), *(Job(prompt, params, abort_at=moment) for prompt in PROMPTS[:5])]
    drive(llm, jobs)
    assert_all_greedy(NAME, jobs[:1])
    assert any(output.finish_reason == "abort" for job in jobs[1:] for output in job.output.outputs)
    for job in jobs[1:]:
        reasons = {output.finish_reason for output in job.output.outputs}
        assert reasons <= {"abort", "length"}
        assert job.output.finished
        if params.is_greedy and job.output.outputs:
            assert_same_tokens(NAME, job.prompt, outputs(job)[0])


def test_a_preempted_request_can_be_aborted_and_aborting_twice_is_harmless() -> None:
    llm = make_llm(NAME, block_size=4)
    engine = llm.engine
    first, second = (engine.add_request(list(PROMPTS[i]), greedy_params()) for i in (2, 3))
    for _ in range(3):
        engine.step()
    engine.scheduler.planner.preempt_for(engine.scheduler.queue.running[0])
    assert second.request.status.name == "PREEMPTED"
    assert engine.abort(second.request.request_id) is second
    assert engine.abort(second.request.request_id) is None
    assert engine.abort("never heard of") is None
    check_books(llm)
    while engine.has_unfinished():
        engine.step()
        check_books(llm)
    assert_same_tokens(NAME, PROMPTS[2], first.to_output().outputs[0].token_ids)
    assert engine.abort(first.request.request_id) is None


def test_a_caller_who_stops_listening_ends_the_request() -> None:
    llm = make_llm(NAME)
    stream = llm.stream({"prompt_token_ids": list(PROMPTS[2])}, greedy_params())
    next(stream)
    next(stream)
    stream.close()
    assert not llm.engine.has_unfinished()
    check_books(llm)


# -- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ({"prompt_token_ids": []}, None, "empty"),
        ({"prompt_token_ids": [1, 256]}, None, "256"),
        ({"prompt_token_ids": [-1]}, None, "-1"),
        ({"prompt_token_ids": [1.5]}, None, "1.5"),
        ({"prompt_token_ids": [True]}, None, "True"),
        ({"prompt_token_ids": "text"}, None, "list of token ids"),
        ({"prompt_token_ids": None}, None, "prompt"),
        ({"prompt_token_ids": [1] * 100}, None, "max_model_len"),
        ({"prompt_token_ids": [1] * 64}, None, "max_model_len"),
        ("text", None, "tokenizer"),
        ({"text": "x"}, None, "prompt_token_ids"),
        ({"prompt_token_ids": [1], "images": []}, None, "images"),
        (7, None, "7"),
        (None, None, "None"),
        ({"prompt_token_ids": [1]}, SamplingParams(n=9), "max_num_seqs"),
        ({"prompt_token_ids": [1]}, SamplingParams(stop="x"), "tokenizer"),
        ({"prompt_token_ids": [1]}, SamplingParams(bad_words=["x"]), "tokenizer"),
        ({"prompt_token_ids": [1]}, SamplingParams(allowed_token_ids=[300]), "300"),
        ({"prompt_token_ids": [1]}, SamplingParams(logit_bias={300: 1}), "300"),
        ({"prompt_token_ids": [1]}, SamplingParams(stop_token_ids=[300]), "300"),
        ({"prompt_token_ids": [1]}, {"temperature": 0}, "SamplingParams"),
        ({"prompt_token_ids": [1]}, "greedy", "SamplingParams"),
    ],
    ids=str,
)
def test_a_bad_request_among_good_ones_is_refused_and_leaves_nothing(prompt: Any, params: Any, message: str) -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=16, max_num_seqs=8)
    good = {"prompt_token_ids": list(PROMPTS[1])}
    with pytest.raises(ValueError, match=message):
        llm.generate([good, prompt, good], [None, params, None], use_tqdm=False)  # type: ignore[list-item]
    assert not llm.engine.has_unfinished()
    check_books(llm)
    assert_all_greedy(NAME, drive(llm, [Job(PROMPTS[1])]))


@pytest.mark.parametrize(
    "call",
    [
        lambda llm: llm.generate([1, 2, 3]),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], [SamplingParams(), SamplingParams()]),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], priority=[1, 2]),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], priority=["high"]),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], {"temperature": 0}),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], BeamSearchParams(2, 2)),
        lambda llm: llm.generate([{"prompt_token_ids": [1]}], 0.7),
        lambda llm: llm.generate(None),
        lambda llm: llm.beam_search({"prompt_token_ids": [1]}, BeamSearchParams(9, 2)),
        lambda llm: llm.beam_search({"prompt_token_ids": [1]}, SamplingParams()),
        lambda llm: llm.chat([{"role": "user", "content": "x"}]),
        lambda llm: list(llm.stream({"prompt_token_ids": []})),
        lambda llm: llm.engine.add_request([1], request_id=7),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(call: Callable[[LLM], Any]) -> None:
    llm = make_llm(NAME, max_num_seqs=8)
    with pytest.raises(ValueError, match=r"."):
        call(llm)
    assert not llm.engine.has_unfinished()
    check_books(llm)
    assert_all_greedy(NAME, drive(llm, [Job(PROMPTS[1], greedy_params(3))]))


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    llm = make_llm(NAME)
    llm.engine.add_request([1, 2], request_id="a")
    with pytest.raises(ValueError, match="in use"):
        llm.engine.add_request([1, 2], request_id="a")
    check_books(llm)
    llm.engine.abort("a")
    llm.engine.add_request([1, 2], request_id="a")
    llm.engine.abort("a")


def test_ids_that_are_made_up_avoid_those_that_callers_chose() -> None:
    llm = make_llm(NAME)
    jobs = [Job(PROMPTS[i], greedy_params(5)) for i in range(3)]
    llm.engine.add_request([1, 2], request_id="request-2")
    drive(llm, jobs)
    assert len({job.output.request_id for job in jobs} | {"request-2"}) == 4


def test_no_prompts_give_no_outputs() -> None:
    assert make_llm(NAME).generate([], use_tqdm=False) == []


# -- crowds ----------------------------------------------------------------------------------------------------------


def test_more_requests_than_places_all_end() -> None:
    llm = make_llm(NAME, block_size=4, num_kv_blocks=14, max_num_seqs=3, max_num_batched_tokens=8)
    jobs = [Job(tuple(random_ids(1 + i % 13, i)), greedy_params(5), priority=i % 3) for i in range(30)]
    drive(llm, jobs)
    for job in jobs:
        assert outputs(job) == [list(greedy(NAME, tuple(job.prompt), 5).token_ids)]
