"""Beam search equals `transformers`' own, with the same scores, under any conditions."""

from __future__ import annotations

import math
from itertools import product

import pytest

from checkpoints import ONE_OF_EACH_CACHE
from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    assert_all_greedy,
    beams,
    drive,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
)
from parameters import quick
from quire import LLM, BeamSearchParams, SamplingParams

ENDS = tuple(range(3, 256, 17))  # 15 of 256 tokens end a beam, so many end, early and late
GRID = list(product((2, 3, 4), (-1.0, 0.0, 1.0, 2.0), (True, False, "never")))


def llm_with_ends(name: str, **options: object) -> LLM:
    llm = make_llm(name, **options)
    llm.engine.eos_token_ids = ENDS
    return llm


def assert_beams_are_the_references(name: str, job: Job) -> None:
    params = job.params
    assert isinstance(params, BeamSearchParams)
    expected = beams(name, tuple(job.prompt), params, ENDS)
    assert job.output.error is None
    found = job.output.outputs
    assert [tuple(output.token_ids) for output in found] == list(expected.token_ids)
    for rank, (output, score) in enumerate(zip(found, expected.scores, strict=True)):
        assert output.index == rank
        assert output.cumulative_logprob is not None
        ours = output.cumulative_logprob / len(output.token_ids) ** params.length_penalty
        assert math.isclose(ours, score, rel_tol=1e-4, abs_tol=1e-4)
        ended = not params.ignore_eos and output.token_ids[-1] in ENDS
        assert output.finish_reason == ("stop" if ended else "length")


@pytest.mark.parametrize(("name", "half"), [("llama", 0), ("gpt2", 1)])
def test_every_width_length_penalty_and_way_to_stop(name: str, half: int) -> None:
    llm = llm_with_ends(name)
    jobs = [
        Job(PROMPTS[i % len(PROMPTS)], BeamSearchParams(width, 10, length_penalty=penalty, early_stopping=early))
        for i, (width, penalty, early) in enumerate(GRID)
        if i % 2 == half
    ]
    for at in range(0, len(jobs), 4):
        drive(llm, jobs[at : at + 4])
    for job in jobs:
        assert_beams_are_the_references(name, job)
    stops = {output.finish_reason for job in jobs for output in job.output.outputs}
    lengths = {len(ids) for job in jobs for ids in outputs(job)}
    assert stops == {"stop", "length"}, "the end tokens do not occur"
    assert len(lengths) > 4, "no beam ends early"


@pytest.mark.parametrize("name", ONE_OF_EACH_CACHE)
def test_beams_of_every_architecture(name: str) -> None:
    llm = llm_with_ends(name, block_size=4)
    jobs = [Job(PROMPTS[i], BeamSearchParams(3, 12, ignore_eos=i == 1)) for i in (0, 1, 3)]
    for job in drive(llm, jobs):
        assert_beams_are_the_references(name, job)


@pytest.mark.parametrize(
    ("name", "caching", "block_size"),
    quick([("llama", True, 1), ("opt-350m", False, 4)], product(["llama", "opt-350m"], [True, False], [1, 4])),
)
def test_beams_beside_sampling_in_a_pool_that_is_too_small(name: str, caching: bool, block_size: int) -> None:
    llm = llm_with_ends(
        name, block_size=block_size, num_kv_blocks=52 // block_size, max_num_batched_tokens=11, max_num_seqs=12,
        enable_prefix_caching=caching, watermark=0,
    )  # fmt: skip
    jobs: list[Job] = []
    for i in range(5):
        jobs.append(Job(PROMPTS[i], BeamSearchParams(2 + i % 3, 10, early_stopping=(True, False, "never")[i % 3]), i))
        jobs.append(Job(PROMPTS[-1 - i], greedy_params(10), arrival=i))
    drive(llm, jobs)
    assert num_preemptions(jobs[::2]) > 0, "no beam search was preempted"
    for job in jobs[::2]:
        assert_beams_are_the_references(name, job)
    assert_all_greedy(name, jobs[1::2])


@pytest.mark.parametrize("num_tokens", [36, 40, 44])
def test_a_beam_search_larger_than_the_pool_takes_turns(num_tokens: int) -> None:
    """17 prompt tokens and four beams of 12 need about 65 slots, more than the pool has."""
    llm = llm_with_ends("llama", block_size=4, num_kv_blocks=num_tokens // 4)
    job = drive(llm, [Job(PROMPTS[3], BeamSearchParams(4, 12, ignore_eos=True))])[0]
    assert_beams_are_the_references("llama", job)


def test_beams_preempted_at_random_moments() -> None:
    llm = llm_with_ends("llama", block_size=4, max_num_batched_tokens=13)
    preemptor = Preemptor(llm, 1)
    jobs = [Job(PROMPTS[i], BeamSearchParams(2 + i % 3, 12)) for i in range(5)]
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step < 60 and step % 3 == 0 else None)
    assert num_preemptions(jobs) > 3
    for job in jobs:
        assert_beams_are_the_references("llama", job)


def test_one_beam_is_greedy() -> None:
    job = drive(make_llm("llama"), [Job(PROMPTS[3], BeamSearchParams(1, 10, ignore_eos=True))])[0]
    greedy_job = drive(make_llm("llama"), [Job(PROMPTS[3], greedy_params(10))])[0]
    assert outputs(job) == outputs(greedy_job)


def test_beams_share_their_blocks() -> None:
    llm = llm_with_ends("llama", block_size=4)
    shared = []
    llm.engine.on_stats.append(lambda stats: shared.append(stats.num_logical_blocks - stats.num_used_blocks))
    drive(llm, [Job(PROMPTS[4], BeamSearchParams(4, 8, ignore_eos=True))])
    assert max(shared) >= 3 * 8  # the prompt's full blocks, once instead of four times


def test_beam_search_of_the_offline_api() -> None:
    llm = llm_with_ends("llama")
    params = BeamSearchParams(3, 10)
    found = llm.beam_search([{"prompt_token_ids": list(prompt)} for prompt in PROMPTS[:3]], params)
    for prompt, output in zip(PROMPTS[:3], found, strict=True):
        assert tuple(tuple(o.token_ids) for o in output.outputs) == beams("llama", prompt, params, ENDS).token_ids
        assert output.finished


def test_a_beam_search_that_is_aborted_leaves_nothing() -> None:
    llm = llm_with_ends("llama", block_size=4)
    for moment in range(1, 8):
        jobs = [Job(PROMPTS[3], BeamSearchParams(3, 10), abort_at=moment), Job(PROMPTS[2], greedy_params(5))]
        drive(llm, jobs)
        assert {output.finish_reason for output in jobs[0].output.outputs} == {"abort"}
        assert_all_greedy("llama", jobs[1:])


@pytest.mark.parametrize("seed", [1, 2])
def test_sampling_is_not_disturbed_by_beams(seed: int) -> None:
    params = SamplingParams(seed=seed, temperature=1.0, max_tokens=12, n=2, ignore_eos=True)
    alone = drive(make_llm("llama"), [Job(PROMPTS[1], params)])[0]
    llm = llm_with_ends("llama", block_size=4)
    job = drive(llm, [Job(PROMPTS[4], BeamSearchParams(4, 12)), Job(PROMPTS[1], params)])[1]
    assert outputs(job) == outputs(alone)
