"""Pooled hidden states of prompts, beside running generations, against those of `transformers`."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    drive,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
    random_ids,
    reference,
)
from kernel_levels import needs_kernels
from quire import SamplingParams

NAME = "qwen3"
LONG = tuple(random_ids(150, 11))


def pooling(kind: str) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=1, pooling=kind)


@cache
def expected(prompt: tuple[int, ...], kind: str) -> np.ndarray:
    with torch.no_grad():
        states = reference(NAME).model(torch.tensor([prompt])).last_hidden_state[0].double()
    return (states[-1] if kind == "last" else states.mean(0)).numpy()


def check(jobs: list[Job]) -> None:
    for job in jobs:
        assert isinstance(job.params, SamplingParams)
        if job.params.pooling is None:
            assert job.output.pooled is None
            continue
        found = np.frombuffer(job.output.pooled or b"", "<f4").astype(float)
        right = expected(tuple(job.prompt), job.params.pooling)
        assert found @ right / np.linalg.norm(found) / np.linalg.norm(right) > 1 - 1e-9
        assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(right), rel=1e-4)


def mixed_jobs() -> list[Job]:
    jobs = [Job(prompt, greedy_params(20)) for prompt in PROMPTS[2:5]]
    jobs += [Job(prompt, pooling(kind)) for prompt in (*PROMPTS, LONG) for kind in ("last", "mean")]
    return [*jobs, Job(PROMPTS[5], greedy_params(20, prompt_logprobs=0), arrival=3)]


@needs_kernels  # else bits depend on the batch
def test_pooled_states_are_the_references_in_chunks_beside_generations() -> None:
    """The same bits come from whole prompts alone, from chunks, and after hits in the prefix cache."""
    llm = make_llm(NAME, max_num_batched_tokens=31, speculation="lookup")
    alone = [Job(prompt, pooling(kind)) for prompt in (PROMPTS[8], LONG) for kind in ("last", "mean")]
    whole = [drive(make_llm(NAME), [job])[0].output.pooled for job in alone]
    jobs = drive(llm, mixed_jobs())
    check(jobs)
    assert [job.output.pooled for job in drive(llm, [Job(job.prompt, job.params) for job in alone])] == whole
    assert [outputs(job) for job in jobs[:3]] == [outputs(job) for job in drive(make_llm(NAME), mixed_jobs()[:3])]


def test_pooled_states_survive_preemption() -> None:
    llm = make_llm(NAME, block_size=4, max_num_batched_tokens=9, num_kv_blocks=300, swap_space=1 << 20)
    preemptor, jobs = Preemptor(llm, 0), mixed_jobs()
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 2 and step < 150 else None)
    check(jobs)
    assert num_preemptions(job for job in jobs if job.params.pooling == "mean") > 2  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", [{"pooling": "cls"}, {"max_tokens": 2}, {"n": 2}], ids=str)
def test_other_poolings_and_outputs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="pooling"):
        SamplingParams(**{"max_tokens": 1, "pooling": "last"} | wrong)  # type: ignore[arg-type]
