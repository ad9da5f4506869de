"""Sampling parameters at their extremes: every request ends, forbidden tokens never appear, and neighbours notice
nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.harness import PROMPTS, Job, checkpoint, drive, greedy_params, make_llm, outputs
from engine.thread_ranks import MultiRankLLM
from quire import LLM, BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED
from quire.runner.row_state import RowState
from quire.sampling_params import MAX_ITEMS

VOCAB = 256  # the tokens of bytes
_TOKENS = st.integers(0, VOCAB - 1)
_WORDS = st.lists(st.lists(st.sampled_from([0, 7, 97, 98, 255]), min_size=1, max_size=5), max_size=40)
_GRAMMAR = StructuredOutputsParams(grammar='start: s\ns: s s | s s s | "a" | "b"')

#: Extremes of every sampling parameter.
EXTREMES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.sampled_from([1, 1, 2, 5]),
    "temperature": st.sampled_from([0, 5e-324, 9.9e-6, 1e-5, 1e-3, 0.7, 1, 1, 37.5, 100]),
    "top_p": st.sampled_from([5e-324, 1e-38, 1e-7, 0.5, 0.999999999, 1, 1]),
    "top_k": st.sampled_from([-1, 0, 1, 2, VOCAB - 1, VOCAB, 2**31 - 1]),
    "min_p": st.sampled_from([0, 0, 5e-324, 1e-38, 0.5, 1]),
    "repetition_penalty": st.sampled_from([0.01, 0.5, 1, 1, 1.3, 100]),
    "presence_penalty": st.sampled_from([-2, 0, 0, 5e-324, 2]),
    "frequency_penalty": st.sampled_from([-2, 0, 0, -1e-38, 2]),
    "logit_bias": st.none() | st.dictionaries(_TOKENS, st.sampled_from([-100, -1e-300, 0, 100]), max_size=VOCAB),
    "bad_words": st.lists(st.sampled_from(["a", "ab", "ba", "the end", "é"]), max_size=3),
    "bad_words_token_ids": _WORDS | st.just([[token] for token in range(VOCAB)]),
    "allowed_token_ids": st.none() | st.lists(_TOKENS, min_size=1, max_size=5) | st.just(range(VOCAB)),
    "structured_outputs": st.sampled_from(
        [None, None, _GRAMMAR, StructuredOutputsParams(regex="[a-z]{3}"), StructuredOutputsParams(choice=("é", "a"))]
    ),
    "seed": st.sampled_from([None, 0, -(2**63), 2**63 - 1]),
    "stop": st.sampled_from([(), ("a",), ("\x00", "é" * 50), tuple(map(chr, range(32, 96)))]),
    "stop_token_ids": st.lists(_TOKENS, max_size=3) | st.just(range(VOCAB)),
    "include_stop_str_in_output": st.booleans(),
    "ignore_eos": st.booleans(),
    "min_tokens": st.sampled_from([0, 0, 1, 5]),
    "max_tokens": st.sampled_from([1, 5, 9]),
    "logprobs": st.sampled_from([None, None, 0, 3, -1, 2**31 - 1]),
    "logprob_token_ids": st.none() | st.lists(_TOKENS, max_size=5),
    "prompt_logprobs": st.sampled_from([None, None, 0, 1, -1]),
    "skip_special_tokens": st.booleans(),
    "detokenize": st.booleans(),
    "pooling": st.sampled_from([None, None, None, "last", "mean"]),
}

HONEST = (
    greedy_params(12, logprobs=2),
    SamplingParams(seed=5, temperature=0.9, top_p=0.9, max_tokens=12, ignore_eos=True, repetition_penalty=1.1, n=2),
    SamplingParams(seed=6, max_tokens=12, structured_outputs=StructuredOutputsParams(regex="([a-f]{2}-){3}x")),
)


@st.composite
def hostile_params(draw: st.DrawFn) -> SamplingParams:
    """Draw valid parameters: values that exclude each other are dropped."""
    given = {name: draw(values) for name, values in EXTREMES.items()}
    if given["pooling"] is not None:
        given["n"] = given["max_tokens"] = 1
    given["min_tokens"] = min(given["min_tokens"], given["max_tokens"])
    if given["logprobs"] is None:
        given["logprob_token_ids"] = None
    if given["structured_outputs"] is not None:
        given["ignore_eos"] = False
    if not given["detokenize"]:
        given["stop"] = ()
    return SamplingParams(**given)


@st.composite
def hostile_beams(draw: st.DrawFn) -> BeamSearchParams:
    return BeamSearchParams(
        draw(st.sampled_from([1, 2, 5])),
        draw(st.sampled_from([1, 6])),
        length_penalty=draw(st.sampled_from([-10, 0, 10])),
        early_stopping=draw(st.sampled_from([True, False, "never"])),
    )


@cache
def llm() -> LLM:
    options = {"num_kv_blocks": 600, "block_size": 4, "max_model_len": 200, "use_tqdm": False, "device": "cpu"}
    return LLM("random:tiny", speculation="off", **options)


def honest_jobs() -> list[Job]:
    return [Job([65, 66, 67, 68, 69 + i], params, arrival=2 * i) for i, params in enumerate(HONEST)]


@cache
def honest_outputs() -> list[list[list[int]]]:
    return [outputs(job) for job in drive(llm(), honest_jobs())]


def check_forbidden(params: SamplingParams, token_ids: list[int], encoded: list[list[int]], ends: set[int]) -> None:
    if params.allowed_token_ids is not None:
        assert set(token_ids) <= set(params.allowed_token_ids)
    for word in (*params.bad_words_token_ids, *map(tuple, encoded)):
        for at in range(len(token_ids) - len(word) + 1):
            assert tuple(token_ids[at : at + len(word)]) != tuple(word), f"{word} is a bad word"
    if params.structured_outputs is None:  # else the grammar may only allow an end
        assert not ends & set(token_ids[: params.min_tokens])


def check_hostile_batch(all_params: list[SamplingParams | BeamSearchParams]) -> None:
    engine = llm().engine
    hostile = [Job([97, 98, 7, 97 + i], params, arrival=i % 4) for i, params in enumerate(all_params)]
    jobs = honest_jobs()
    with pytest.MonkeyPatch.context() as patch:  # a virtual machine's stalls count as a thread's processor time
        patch.setattr("quire.structured.matcher._BURST", 500)
        drive(llm(), [*hostile, *jobs], max_steps=400)  # and so every request ends
    assert [outputs(job) for job in jobs] == honest_outputs()
    for job in hostile:
        if isinstance(job.params, SamplingParams):
            assert job.answer is not None
            accepted = job.answer.request.sampling_params
            eos = set() if job.params.ignore_eos else set(engine.eos_token_ids)
            for completion in job.output.outputs:
                words = list(accepted.bad_words_token_ids)
                check_forbidden(job.params, completion.token_ids, words, eos | set(job.params.stop_token_ids))
        if job.output.error is not None:
            assert job.output.error.startswith((EVERY_TOKEN_IS_BANNED, BROKEN_GRAMMAR)), job.output.error
            assert {completion.finish_reason for completion in job.output.outputs} <= {"error", "stop", "length"}


_BATCHES = st.lists(hostile_params() | hostile_beams(), min_size=6, max_size=8)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(batch=_BATCHES)
def test_whatever_a_request_asks_for_it_ends_and_its_neighbours_keep_their_tokens(batch: list[Any]) -> None:
    check_hostile_batch(batch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=1000, deadline=None)
@given(batch=_BATCHES)
def test_thousands_of_hostile_requests_end_and_their_neighbours_keep_their_tokens(batch: list[Any]) -> None:
    check_hostile_batch(batch)


def test_the_extremes_cover_every_sampling_parameter() -> None:
    assert set(EXTREMES) == {field.name for field in fields(SamplingParams)}


# -- failures of one row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["append", "restrict", "__init__"])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_error_in_the_state_of_a_row_fails_its_request_alone_on_any_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, where: str, num_ranks: int
) -> None:
    usual = getattr(RowState, where)

    def fail(self: RowState, *args: Any) -> Any:
        usual(self, *args)
        if self.params.presence_penalty == 2 and (where == "__init__" or self.num_output_tokens == 2):
            raise RuntimeError("the state is lost")

    make = make_llm if num_ranks == 1 else lambda name, **more: MultiRankLLM(name, num_ranks, **more)
    llm, honest = make("llama", block_size=4), [greedy_params(8), SamplingParams(seed=1, max_tokens=8, ignore_eos=True)]
    jobs = [Job(PROMPTS[2 + i], params) for i, params in enumerate(honest)]
    expected = [outputs(job) for job in drive(llm, jobs)]
    monkeypatch.setattr(RowState, where, fail)
    bad = SamplingParams(presence_penalty=2, allowed_token_ids=(1, 2, 3), n=2, max_tokens=6, ignore_eos=True)
    jobs = [Job(PROMPTS[3], bad), *(Job(PROMPTS[2 + i], each) for i, each in enumerate(honest)), Job(PROMPTS[3], bad)]
    drive(llm, jobs)
    assert all("the state is lost" in str(job.output.error) for job in (jobs[0], jobs[3]))
    assert [outputs(job) for job in jobs[1:3]] == expected


def test_a_prompt_whose_log_probabilities_fail_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("not to be counted")

    monkeypatch.setattr("quire.runner.model_runner.token_logprobs", fail)
    jobs = [Job(PROMPTS[3], greedy_params(6, prompt_logprobs=1)), Job(PROMPTS[4], greedy_params(6))]
    drive(make_llm("llama", max_num_batched_tokens=16), jobs)
    assert "not to be counted" in str(jobs[0].output.error)
    assert len(outputs(jobs[1])[0]) == 6


def test_a_request_that_bans_every_token_takes_no_cached_block_from_others() -> None:
    llm = make_llm("llama", block_size=4)
    drive(llm, [Job(PROMPTS[4], greedy_params(2))])
    bad = drive(llm, [Job(PROMPTS[4], greedy_params(2, allowed_token_ids=(5,), bad_words_token_ids=((5,),)))])[0]
    assert bad.output.error == EVERY_TOKEN_IS_BANNED
    assert drive(llm, [Job(PROMPTS[4], greedy_params(2))])[0].output.num_cached_tokens == 32


# -- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAX_ITEMS)
def test_a_list_that_is_too_long_is_refused_with_its_limit(name: str) -> None:
    limit = MAX_ITEMS[name]
    item = {"stop": "a", "bad_words": "a", "bad_words_token_ids": [1]}.get(name, 1)
    given = dict.fromkeys(range(limit + 1), 0) if name == "logit_bias" else [item] * (limit + 1)
    with pytest.raises(ValueError, match=rf"^{name}=.* has {limit + 1} entries; at most {limit} are allowed"):
        SamplingParams(**{name: given})


def test_the_tokens_of_all_bad_words_together_are_limited() -> None:
    with pytest.raises(ValueError, match=r"^bad_words_token_ids=.* has 20000 tokens in all; at most 16384 are allowed"):
        SamplingParams(bad_words_token_ids=[[1] * 2000] * 10)


def test_a_step_reads_no_list_of_a_request_again() -> None:
    """Masks and biases are made once for all samples of a request."""
    reads = 0

    class Counted(tuple):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            nonlocal reads
            reads += 1
            return super().__iter__()

    params = greedy_params(12, n=4, temperature=1, seed=1, logit_bias={3: 1.0})
    for name, ids in (("allowed_token_ids", range(200)), ("stop_token_ids", (255,)), ("min_tokens", 9)):
        object.__setattr__(params, name, ids if name == "min_tokens" else Counted(ids))
    object.__setattr__(params, "bad_words_token_ids", Counted([(5,), (6, 7)]))
    llm = make_llm("llama")
    state = llm.engine.add_request([1, 2, 3], params)
    for _ in range(2):
        llm.engine.step()
    reads = 0
    for _ in range(5):
        llm.engine.step()
    assert reads == 0
    states = [each for each in llm.engine.runner._states if each is not None]
    assert len({id(each.rules) for each in states}) == 1
    llm.engine.abort(state.request.request_id)


# -- end tokens and grammars -----------------------------------------------------------------------------------------


def test_end_tokens_beyond_the_vocabulary_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in checkpoint("llama").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 99999]}))
    options = {"num_kv_blocks": 64, "skip_tokenizer_init": True, "use_tqdm": False, "device": "cpu"}
    with caplog.at_level(logging.WARNING, "quire"):
        llm = LLM(str(tmp_path), **options)
    assert "[99999] are ignored" in caplog.text
    assert llm.engine.eos_token_ids == (1,)
    jobs = [Job(PROMPTS[3], greedy_params(4, min_tokens=1, ignore_eos=False)), Job(PROMPTS[2], greedy_params(4))]
    drive(llm, jobs)
    assert all(outputs(job)[0] for job in jobs)


def test_sequences_whose_masks_take_long_sit_out_and_get_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = StructuredOutputsParams(regex="([a-z]{3},)*")
    asked = [
        *(greedy_params(12, structured_outputs=lists, ignore_eos=False, min_tokens=12) for _ in range(3)),
        SamplingParams(n=3, seed=4, min_tokens=12, max_tokens=12, structured_outputs=lists, logprobs=2),
        greedy_params(12),
    ]
    prompts = [[65 + i, 66, 67] for i in range(len(asked))]
    expected = [outputs(job) for job in drive(llm(), [Job(*each) for each in zip(prompts, asked, strict=True)])]
    monkeypatch.setattr("quire.structured.matcher._STEP_S", -1.0)  # one mask per step
    monkeypatch.setattr("quire.structured.matcher._BATCH", 1)
    engine = llm()
    jobs = drive(engine, [Job(*each) for each in zip(prompts, asked, strict=True)])
    assert [outputs(job) for job in jobs] == expected
    ends = [job.output.metrics.finished_time for job in jobs]
    assert ends[-1] == min(ends), "a request without a grammar waits for no masks"


@pytest.mark.parametrize("num_neighbours", [0, 2])
def test_a_grammar_whose_masks_take_too_long_fails_alone(monkeypatch: pytest.MonkeyPatch, num_neighbours: int) -> None:
    monkeypatch.setattr("quire.structured.matcher._TOKEN_S", 0.0005)
    monkeypatch.setattr("quire.structured.matcher._SLOW_S", 0.001)
    slow = 'start: "' + "a" * 60 + '" s\ns: s s | s s s | /[a-z ]/'
    plain = StructuredOutputsParams(regex="[a-z]{20}")
    asked = [
        SamplingParams(
            seed=1, min_tokens=180, max_tokens=180, structured_outputs=StructuredOutputsParams(grammar=slow)
        ),
        *(SamplingParams(seed=i, max_tokens=30, structured_outputs=plain) for i in range(num_neighbours)),
    ]
    jobs = drive(llm(), [Job([65, 66, 67], params, arrival=50 * (i > 0)) for i, params in enumerate(asked)])
    assert str(jobs[0].output.error).startswith(f"{BROKEN_GRAMMAR}: it is too complex")
    assert [len(outputs(job)[0]) for job in jobs[1:]] == [21] * num_neighbours
