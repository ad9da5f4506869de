"""Every way to request tokens, through the whole engine: the same seed gives the same tokens, and every field works."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest
import torch

from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    drive,
    greedy,
    greedy_params,
    logprobs,
    make_llm,
    num_preemptions,
    outputs,
)
from parameters import in_turns, quick
from quire import LLM, SamplingParams

NAME = "llama"


def sampling(**more: Any) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.9, "top_p": 0.95, "max_tokens": 12, "ignore_eos": True} | more))


def alone(prompt: tuple[int, ...], params: SamplingParams, name: str = NAME) -> Any:
    return drive(make_llm(name), [Job(prompt, params)])[0]


# -- seeds -----------------------------------------------------------------------------------------------------------

SEEDED = [
    sampling(seed=1),
    sampling(seed=2, n=3, temperature=1.3, top_p=0.8),
    sampling(seed=3, top_k=20, repetition_penalty=1.3, logprobs=2),
    sampling(seed=4, min_p=0.02, presence_penalty=0.5, frequency_penalty=0.3, n=2),
    sampling(seed=5, logit_bias={7: 4.0}, bad_words_token_ids=((9, 10), (11,)), min_tokens=3, stop_token_ids=(7,)),
]


WAYS: dict[str, dict[str, Any]] = {
    "batched": {},
    "in chunks": {"max_num_batched_tokens": 5},
    "preempted": {"block_size": 4, "num_kv_blocks": 16, "watermark": 0},
    "preempted without caching": {
        "block_size": 1, "num_kv_blocks": 64, "watermark": 0, "enable_prefix_caching": False
    },
}  # fmt: skip


@cache
def seeded_alone(name: str) -> list[Job]:
    return [alone(PROMPTS[i % 5], params, name) for i, params in enumerate(SEEDED)]


@pytest.mark.parametrize(("name", "way"), in_turns(["llama", "gpt2", "opt-350m"], list(WAYS)))
def test_the_same_seed_gives_the_same_tokens_in_any_company(name: str, way: str) -> None:
    llm = make_llm(name, **WAYS[way])
    jobs = [Job(PROMPTS[i % 5], params, arrival=i) for i, params in enumerate(SEEDED)]
    drive(llm, jobs)
    if "watermark" in WAYS[way]:
        assert num_preemptions(jobs) > 0
    for job, expected in zip(jobs, seeded_alone(name), strict=True):
        assert outputs(job) == outputs(expected)
        for ours, theirs in zip(job.output.outputs, expected.output.outputs, strict=True):
            if theirs.cumulative_logprob is not None:
                assert math.isclose(ours.cumulative_logprob or 0, theirs.cumulative_logprob, abs_tol=1e-3)


def test_the_same_seed_gives_the_same_tokens_after_random_preemptions() -> None:
    llm = make_llm(NAME, block_size=4)
    preemptor = Preemptor(llm, 2)
    jobs = [Job(PROMPTS[i % 5], params, arrival=i) for i, params in enumerate(SEEDED)]
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 2 and step < 40 else None)
    assert num_preemptions(jobs) > 4
    for job, expected in zip(jobs, seeded_alone(NAME), strict=True):
        assert outputs(job) == outputs(expected)


def test_other_seeds_other_samples_and_other_requests_differ() -> None:
    llm = make_llm(NAME)
    jobs = drive(llm, [Job(PROMPTS[0], sampling(seed=seed, n=4, temperature=1.5)) for seed in (1, 2)])
    jobs += drive(llm, [Job(PROMPTS[0], sampling(n=2, temperature=1.5)) for _ in range(2)])
    all_ids = [tuple(ids) for job in jobs for ids in outputs(job)]
    assert len(set(all_ids)) == len(all_ids)


def test_more_samples_begin_with_those_of_fewer() -> None:
    three, five = (alone(PROMPTS[1], sampling(seed=9, n=n)) for n in (3, 5))
    assert outputs(five)[:3] == outputs(three)


def test_the_engines_seed_makes_runs_repeatable() -> None:
    def run(seed: int) -> list[list[int]]:
        llm = make_llm(NAME, seed=seed)
        found = llm.generate([{"prompt_token_ids": list(p)} for p in PROMPTS[:3]], sampling(), use_tqdm=False)
        return [output.outputs[0].token_ids for output in found]

    assert run(1) == run(1)
    assert run(1) != run(2)


# -- what ends an output ---------------------------------------------------------------------------------------------


def test_a_stop_token_ends_the_output_and_is_named() -> None:
    expected = greedy(NAME, PROMPTS[3]).token_ids
    at = next(i for i in range(5, 20) if expected.index(expected[i]) == i)
    job = alone(PROMPTS[3], greedy_params(stop_token_ids=(expected[at], 1)))
    output = job.output.outputs[0]
    assert output.token_ids == list(expected[: at + 1])
    assert (output.finish_reason, output.stop_reason) == ("stop", expected[at])


def test_end_tokens_are_ignored_when_asked_but_stop_tokens_are_not() -> None:
    expected = greedy(NAME, PROMPTS[3]).token_ids
    llm = make_llm(NAME)
    llm.engine.eos_token_ids = (expected[4],)
    jobs = drive(
        llm,
        [
            Job(PROMPTS[3], greedy_params(10, ignore_eos=False)),
            Job(PROMPTS[3], greedy_params(10)),
            Job(PROMPTS[3], greedy_params(10, stop_token_ids=(expected[4],))),
        ],
    )
    first = expected.index(expected[4])
    assert [len(outputs(job)[0]) for job in jobs] == [first + 1, 10, first + 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_end_or_stop_token_comes_before_min_tokens(temperature: float) -> None:
    llm = make_llm(NAME)
    llm.engine.eos_token_ids = tuple(range(0, 256, 3))
    params = SamplingParams(
        temperature=temperature, min_tokens=9, max_tokens=40, stop_token_ids=tuple(range(1, 256, 3)), seed=3
    )
    for prompt in PROMPTS[:4]:
        ids = outputs(drive(llm, [Job(prompt, params)])[0])[0]
        assert len(ids) >= 9
        assert all(token % 3 == 2 for token in ids[:9])


def test_without_max_tokens_the_context_is_filled() -> None:
    llm = make_llm(NAME, max_model_len=50)
    job = drive(llm, [Job(PROMPTS[3], greedy_params(max_tokens=None))])[0]
    assert len(outputs(job)[0]) == 50 - 17
    assert job.output.outputs[0].finish_reason == "length"


# -- bans ------------------------------------------------------------------------------------------------------------


def test_only_allowed_tokens_are_chosen_and_banned_sequences_never_completed() -> None:
    params = sampling(
        seed=1, allowed_token_ids=(5, 6, 7), bad_words_token_ids=((5, 5), (6, 7, 5), (7, 7)), max_tokens=200,
        temperature=2.0, top_p=1.0,
    )  # fmt: skip
    ids = outputs(alone(PROMPTS[0], params))[0]
    assert set(ids) == {5, 6, 7}
    pairs, triples = set(pairwise(ids)), set(zip(ids, ids[1:], ids[2:], strict=False))
    assert not pairs & {(5, 5), (7, 7)}
    assert (6, 7, 5) not in triples
    assert (7, 5) in pairs, "only the whole sequence is banned"


def test_banned_sequences_stay_banned_over_a_preemption() -> None:
    params = sampling(seed=1, allowed_token_ids=(5, 6), bad_words_token_ids=((5, 5), (6, 6)), max_tokens=30)
    llm = make_llm(NAME, block_size=4)
    preemptor = Preemptor(llm, 0)
    jobs = [Job(PROMPTS[2], greedy_params(40)), Job(PROMPTS[1], params)]
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 3 == 2 and step < 50 else None)
    ids = outputs(jobs[1])[0]
    assert all(a != b for a, b in pairwise(ids))


def test_a_bias_can_force_and_forbid() -> None:
    assert set(outputs(alone(PROMPTS[0], sampling(logit_bias={9: 100.0})))[0]) == {9}
    expected = greedy(NAME, PROMPTS[3]).token_ids
    forbidden = outputs(alone(PROMPTS[3], greedy_params(logit_bias={expected[0]: -100.0})))[0]
    assert expected[0] not in forbidden


def test_penalties_keep_tokens_from_coming_again() -> None:
    ids = outputs(alone(PROMPTS[1], greedy_params(60, repetition_penalty=50.0)))[0]
    assert len(set(ids)) == 60
    assert not set(ids) & set(PROMPTS[1])
    free = outputs(alone(PROMPTS[1], sampling(seed=1, temperature=0.5, allowed_token_ids=tuple(range(8)))))[0]
    evened = outputs(
        alone(PROMPTS[1], greedy_params(8, frequency_penalty=2.0, presence_penalty=2.0, allowed_token_ids=(1, 2)))
    )[0]
    assert set(free) <= set(range(8))
    assert set(evened) == {1, 2}


# -- log-probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "count"), in_turns(["llama", "gpt2", "opt-350m", "qwen3"], [0, 1, 5]))
def test_log_probabilities_are_the_references(name: str, count: int) -> None:
    job = alone(PROMPTS[3], sampling(seed=1, logprobs=count, n=2), name)
    for output in job.output.outputs:
        assert output.logprobs is not None
        assert len(output.logprobs) == len(output.token_ids)
        expected = logprobs(name, (*PROMPTS[3], *output.token_ids))[len(PROMPTS[3]) - 1 :]
        for token, entry, row in zip(output.token_ids, output.logprobs, expected, strict=False):
            best = row.topk(max(count, 1)).indices.tolist()[:count]
            assert list(entry) == [*best, *([token] if token not in best else [])]
            for id_, found in entry.items():
                assert found.logprob == pytest.approx(float(row[id_]), abs=2e-3)
                assert found.rank == 1 + int((row > row[id_]).sum())
                assert found.decoded_token is None
        total = sum(float(row[token]) for token, row in zip(output.token_ids, expected, strict=False))
        assert output.cumulative_logprob == pytest.approx(total, abs=1e-2)


def check_prompt_logprobs(name: str, job: Job, count: int) -> None:
    found = job.output.prompt_logprobs
    assert found is not None
    assert len(found) == len(job.prompt)
    assert found[0] is None
    expected = logprobs(name, tuple(job.prompt))
    for position in range(1, len(job.prompt)):
        entry, row, token = found[position], expected[position - 1], job.prompt[position]
        assert entry is not None, f"nothing at {position}"
        best = row.topk(count).indices.tolist() if count else []
        assert list(entry) == [*best, *([token] if token not in best else [])]
        assert entry[token].logprob == pytest.approx(float(row[token]), abs=2e-3)
        assert entry[token].rank == 1 + int((row > row[token]).sum())


@pytest.mark.parametrize(
    ("name", "budget", "count"),
    quick([("llama", 1, 3), ("llama", 64, 0), ("gpt2", 7, 3)], product(["llama", "gpt2"], [1, 7, 64], [0, 3])),
)
def test_prompt_log_probabilities_are_the_references(name: str, budget: int, count: int) -> None:
    llm = make_llm(name, block_size=4, max_num_batched_tokens=budget)
    drive(llm, [Job(PROMPTS[4])])  # its prefix is cached now
    jobs = [Job(prompt, greedy_params(3, prompt_logprobs=count)) for prompt in (PROMPTS[4], PROMPTS[0], PROMPTS[2])]
    jobs.append(Job(PROMPTS[4], greedy_params(3, n=2, prompt_logprobs=count)))
    for job in drive(llm, jobs):
        check_prompt_logprobs(name, job, count)
        assert job.output.num_cached_tokens == 0
        assert outputs(job)[0] == list(greedy(name, tuple(job.prompt)).token_ids[:3])


@pytest.mark.parametrize("n", [1, 2])
def test_prompt_log_probabilities_survive_preemption(n: int) -> None:
    llm = make_llm(NAME, block_size=4, max_num_batched_tokens=6)
    preemptor = Preemptor(llm, 0)
    params = greedy_params(8, prompt_logprobs=2, n=n)
    jobs = [Job(PROMPTS[2], greedy_params(20)), *(Job(prompt, params) for prompt in PROMPTS[3:6])]
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 3 == 2 and step < 60 else None)
    assert num_preemptions(jobs) > 4
    for job in jobs[1:]:
        check_prompt_logprobs(NAME, job, 2)


def test_prompt_log_probabilities_in_slices_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(NAME)
    monkeypatch.setattr(llm.engine.runner, "_max_logits_rows", 5)
    job = drive(llm, [Job(PROMPTS[4], greedy_params(3, prompt_logprobs=2))])[0]
    check_prompt_logprobs(NAME, job, 2)


# -- number formats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), in_turns(["llama", "gpt2", "opt-350m"], ["bfloat16", "float16"]))
def test_half_precision_is_close_to_the_reference(name: str, dtype: str) -> None:
    llm = make_llm(name, dtype=dtype, block_size=4, max_num_batched_tokens=9)
    job = drive(llm, [Job(PROMPTS[4], greedy_params(6, prompt_logprobs=0)), Job(PROMPTS[1])])[0]
    assert job.output.prompt_logprobs is not None
    ours = [entry[token].logprob for entry, token in zip(job.output.prompt_logprobs, PROMPTS[4], strict=True) if entry]
    rows = logprobs(name, PROMPTS[4])[:-1]
    theirs = rows[torch.arange(len(rows)), torch.tensor(PROMPTS[4][1:])]
    error = (torch.tensor(ours) - theirs).abs().mean() / theirs.std()
    assert error < (0.3 if dtype == "bfloat16" else 0.03)


# -- text ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts() -> LLM:
    return LLM("random:tiny", num_kv_blocks=100, use_tqdm=False)


def text_job(llm: LLM, prompt: str, **params: Any) -> Any:
    # Printable bytes only, so that text and tokens are one to one.
    allowed = params.pop("allowed", [llm.tokenizer.encode(c)[0] for c in "abcde "])
    params = {"allowed_token_ids": allowed, "seed": 1, "max_tokens": 60, "ignore_eos": True} | params
    return llm.generate(prompt, SamplingParams(**params), use_tqdm=False)[0].outputs[0]


def test_a_stop_string_over_several_tokens_ends_the_text(texts: LLM) -> None:
    free = text_job(texts, "Hi")
    assert len(free.text) == 60
    stop = free.text[20:25]
    at = free.text.index(stop)
    for include in (False, True):
        output = text_job(texts, "Hi", stop=[stop, "zzz"], include_stop_str_in_output=include)
        assert output.text == free.text[: at + (5 if include else 0)]
        assert output.token_ids == free.token_ids[: at + 5]
        assert (output.finish_reason, output.stop_reason) == ("stop", stop)


def test_of_two_stop_strings_the_first_to_end_counts(texts: LLM) -> None:
    free = text_job(texts, "Hi").text
    later, sooner = free[10:14], free[5:8]
    output = text_job(texts, "Hi", stop=[later, sooner])
    assert output.text == free[: min(free.index(later), free.index(sooner))]


def test_stop_strings_wait_for_min_tokens(texts: LLM) -> None:
    free = text_job(texts, "Hi").text
    stop = next(free[at : at + 2] for at in range(20) if free[at : at + 2] in free[28:])
    output = text_job(texts, "Hi", stop=stop, min_tokens=30)
    assert len(output.token_ids) >= 30
    assert output.text == free[: len(output.text)]
    after = free.index(stop, 30 - len(stop))
    assert output.text == free[:after]


def test_each_sample_stops_for_itself(texts: LLM) -> None:
    params = {"n": 4, "seed": 2, "max_tokens": 40, "allowed_token_ids": [97, 98, 99], "ignore_eos": True}
    free = texts.generate("Hi", SamplingParams(**params), use_tqdm=False)[0]
    stop = free.outputs[1].text[5:9]
    found = texts.generate("Hi", SamplingParams(**params, stop=stop), use_tqdm=False)[0]
    for before, after in zip(free.outputs, found.outputs, strict=True):
        assert after.text == before.text.split(stop)[0]
        assert after.finish_reason == ("stop" if stop in before.text else "length")


def test_bad_words_are_never_written(texts: LLM) -> None:
    free = text_job(texts, "Hi", max_tokens=200, temperature=2.0).text
    assert "ab" in free
    output = text_job(texts, "Hi", max_tokens=200, bad_words=["ab", "c d"], temperature=2.0)
    assert "ab" not in output.text
    assert "c d" not in output.text
    assert "a" in output.text


def test_log_probabilities_carry_their_text(texts: LLM) -> None:
    output = text_job(texts, "Hi", logprobs=2, max_tokens=5)
    assert output.logprobs is not None
    for token, entry in zip(output.token_ids, output.logprobs, strict=True):
        assert entry[token].decoded_token == texts.tokenizer.token_text(token)


def test_without_detokenizing_there_is_no_text(texts: LLM) -> None:
    output = text_job(texts, "Hi", detokenize=False)
    assert output.text == ""
    assert output.token_ids == text_job(texts, "Hi").token_ids
