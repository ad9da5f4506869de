"""No draft changes an output: tokens, text, log-probabilities and ends are those of an engine without drafts."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import Adversary, draft_from, share_right
from engine.harness import PROMPTS, Job, assert_all_greedy, drive, greedy_params, make_llm, num_preemptions
from engine.thread_ranks import MultiRankLLM
from kernel_levels import needs_kernels
from parameters import quick
from quire import LLM, SamplingParams, StructuredOutputsParams
from quire.core.request import Sequence
from quire.core.speculation.drafts import Lookup
from quire.outputs import RequestOutput
from quire.prompt import Prompt

MODEL = "random:tiny"
NUM_BLOCKS = {"llama": 18, "gpt2": 18, "qwen3-moe": 18, "qwen3_5": 14, "lfm2": 9}  #: too few for all prompts
TEXTS = ("one two three one two", "[1, 2, 3, 1, 2", "a")
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["x", "yy"]}, "size": {"type": "integer"}}}


@cache
def make(speculation: str) -> LLM:
    options = {"num_kv_blocks": 60, "block_size": 4, "max_model_len": 160, "use_tqdm": False, "device": "cpu"}
    return LLM(MODEL, dtype="float32", speculation=speculation, speculative_tokens=6, **options)


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    languages: tuple[dict[str, Any], ...] = (
        {},
        {"json": {**SCHEMA, "required": ["name", "size"], "additionalProperties": False}},
        {"regex": "(abc)+d?"},
        {"choice": ("yes indeed", "no")},
    )
    language = one_of(*languages)
    return SamplingParams(
        n=one_of(1, 1, 2),
        temperature=one_of(0.0, 0.0, 0.5, 1.5),
        top_p=one_of(1.0, 0.8),
        top_k=one_of(0, 5),
        min_p=one_of(0.0, 0.1),
        repetition_penalty=one_of(1.0, 1.3),
        presence_penalty=one_of(0.0, 1.0),
        frequency_penalty=one_of(0.0, 0.5),
        logit_bias=one_of(None, {7: 5.0, 9: -100.0}),
        seed=draw(st.integers(0, 99)),
        max_tokens=one_of(5, 17, 40),
        min_tokens=one_of(0, 0, 5) if not language else 0,
        stop=one_of((), ("e",), ("a", "ab")),
        stop_token_ids=one_of((), (3, 4, 5, 6, 7, 8)),
        bad_words_token_ids=one_of((), ((5,), (6, 7))),
        logprobs=one_of(None, 0, 3),
        ignore_eos=one_of(False, True) if not language else False,
        structured_outputs=StructuredOutputsParams(**language) if language else None,
        include_stop_str_in_output=draw(st.booleans()),
    )


def ask(llm: LLM, asked: list[tuple[str, SamplingParams]]) -> list[RequestOutput]:
    states = [llm.engine.add_request(text, each, request_id=f"{at}") for at, (text, each) in enumerate(asked)]
    while llm.engine.has_unfinished():
        llm.engine.step()
        llm.engine.scheduler.check_integrity()
    return [state.to_output() for state in states]


def describe(output: RequestOutput) -> list[Any]:
    return [output.error, *((each.text, each.token_ids, each.finish_reason, each.stop_reason, each.cumulative_logprob,
                             each.logprobs and each.logprobs[:]) for each in output.outputs)]  # fmt: skip


@needs_kernels  # else bits depend on the batch
@settings(max_examples=15, deadline=None, derandomize=True)
@given(asked=st.lists(st.tuples(st.sampled_from(TEXTS), params()), min_size=1, max_size=3), num_right=st.integers(2, 8))
def test_whatever_is_drafted_the_outputs_are_the_same(asked: list[tuple[str, SamplingParams]], num_right: int) -> None:
    expected = ask(make("off"), asked)

    def answer(seq: Sequence) -> list[int]:
        return expected[int(seq.request.request_id)].outputs[seq.index].token_ids

    llm = make("lookup")
    draft_from(llm, Adversary(answer, num_right, seed=num_right, vocab_size=300))
    assert list(map(describe, ask(llm, asked))) == list(map(describe, expected))


def test_half_of_the_drafts_are_right_and_save_steps() -> None:
    asked = [(TEXTS[0], SamplingParams(temperature=0, max_tokens=100, ignore_eos=True))]
    (expected,) = ask(make("off"), asked)
    llm = LLM(MODEL, dtype="float32", speculation="lookup", use_tqdm=False, device="cpu", num_kv_blocks=60)
    draft_from(llm, Adversary(lambda seq: expected.outputs[0].token_ids, 7, vocab_size=300))
    assert describe(ask(llm, asked)[0]) == describe(expected)
    share = share_right(llm)
    assert share is not None
    assert 0.2 < share < 0.95
    assert llm.engine.scheduler.num_steps < 60


def test_what_a_grammar_forces_needs_no_step_of_its_own() -> None:
    wanted = StructuredOutputsParams(regex="[ab] is always followed by this text, and then by a number: [0-9]")
    asked = [("a", SamplingParams(temperature=0, max_tokens=100, structured_outputs=wanted))]
    llm = LLM(MODEL, dtype="float32", speculation="lookup", use_tqdm=False, device="cpu", num_kv_blocks=60)
    llm.engine.scheduler.speculator.costs = None
    assert describe(ask(llm, asked)[0]) == describe(ask(make("off"), asked)[0])
    counts = llm.engine.scheduler.speculator.counts
    assert counts.accepted.total() > 20


def test_a_prediction_is_drafted_and_counted() -> None:
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    (expected,) = ask(make("off"), [(TEXTS[0], params)])
    tokens = expected.outputs[0].token_ids
    llm = make("lookup")
    llm.engine.scheduler.speculator.costs = None
    llm.engine.scheduler.speculator.make_sources = lambda seq: (Lookup(seq.request.prediction),)
    prompt = llm.engine.tokenizer.encode(TEXTS[0])
    state = llm.engine.add_request(Prompt(token_ids=prompt, prediction=(*tokens[:20], 299, *tokens[21:])), params)
    while llm.engine.has_unfinished():
        llm.engine.step()
    output = state.to_output()
    assert describe(output) == describe(expected)
    assert output.predicted_tokens is not None
    accepted, rejected = output.predicted_tokens
    assert accepted >= 16
    assert rejected >= 1


@pytest.mark.parametrize(
    ("name", "policy"),
    quick([("llama", "recompute"), ("qwen3_5", "swap")], product(NUM_BLOCKS, ["recompute", "swap"])),
)
def test_two_ranks_verify_the_same_drafts(name: str, policy: str) -> None:
    jobs = [Job(prompt, greedy_params(20)) for prompt in PROMPTS]
    alone = {job.prompt: job for job in drive(make_llm(name), [Job(prompt, greedy_params(20)) for prompt in PROMPTS])}

    def answer(seq: Sequence) -> list[int]:
        return alone[tuple(seq.request.prompt_token_ids)].output.outputs[0].token_ids

    options = {"swap_space": "8MiB", "recovery_policy": policy} if policy == "swap" else {}
    llm = MultiRankLLM(name, 2, block_size=4, num_kv_blocks=NUM_BLOCKS[name], watermark=0, speculation="lookup",
                       **options)  # fmt: skip
    draft_from(llm, Adversary(answer, 6))
    assert_all_greedy(name, drive(llm, jobs))
    assert num_preemptions(jobs)
    assert share_right(llm)


def test_drafts_whose_kv_is_not_a_number_leave_nothing_behind() -> None:
    llm = make_llm("llama", speculation="lookup", block_size=16)
    runner = llm.engine.runner
    draft_from(llm, Adversary(lambda seq: [], 0, vocab_size=1))
    attend, num_spoiled = runner.attention.attend, 0

    def spoil(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, *more: Any) -> Any:
        nonlocal num_spoiled
        if len(k) > 1 and len(runner.batch._drafting):
            num_spoiled += 1
            k[1:], v[1:] = np.nan, np.nan  # of the drafts alone: there is one sequence, which decodes
        return attend(layer, q, k, v, *more)

    runner.attention.attend = spoil
    (job,) = drive(llm, [Job(PROMPTS[2], greedy_params(20))])
    assert_all_greedy("llama", [job])
    assert num_spoiled
