"""Greedy float32 output ids equal those of `transformers`, for each architecture, under any conditions."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest
import torch

from checkpoints import ARCHITECTURES, HYBRIDS, KINDS, ONE_OF_EACH_CACHE, ONE_OF_EACH_KIND
from engine.harness import (
    CLOSE,
    NUM_TOKENS,
    PROMPTS,
    Job,
    Preemptor,
    assert_all_greedy,
    assert_same_tokens,
    drive,
    greedy,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
    random_ids,
)
from parameters import in_turns, quick
from quire import SamplingParams

# Prompts in chunks and batches run for every architecture; other tests of the arithmetic for one of each kind, and
# tests of the scheduler alone for one of each kind of code. The others are slow.
one_of_each_kind = pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
FAMILIES = ("llama", "gpt2", "mistral-window", "gemma4-shared", "llama-biases", "qwen3", "opt-350m", "qwen3-moe")
one_of_each_family = pytest.mark.parametrize("name", quick(FAMILIES[:4], FAMILIES))


@one_of_each_kind
def test_the_reference_never_hesitates_on_the_committed_prompts(name: str) -> None:
    gaps = [gap for prompt in PROMPTS for gap in greedy(name, prompt).gaps]
    assert min(gaps) > CLOSE
    assert len({token for prompt in PROMPTS for token in greedy(name, prompt).token_ids}) > 40, "it repeats itself"


@one_of_each_kind
def test_one_request_alone(name: str) -> None:
    llm = make_llm(name)
    for prompt in PROMPTS[:5]:
        assert_all_greedy(name, drive(llm, [Job(prompt, greedy_params(10))]))


@one_of_each_kind
def test_many_requests_of_different_lengths_at_once(name: str) -> None:
    llm = make_llm(name)
    jobs = [Job(prompt, greedy_params(NUM_TOKENS - i % 5)) for i, prompt in enumerate(PROMPTS)]
    assert_all_greedy(name, drive(llm, jobs))


@pytest.mark.parametrize(("name", "budget"), [*product(ARCHITECTURES, [7]), *in_turns(FAMILIES, [1, 3, 16, 64])])
def test_prompts_computed_in_chunks(name: str, budget: int) -> None:
    llm = make_llm(name, max_num_batched_tokens=budget)
    prompts = PROMPTS if budget > 1 else PROMPTS[:4]
    jobs = [Job(prompt, greedy_params(8), arrival=2 * i) for i, prompt in enumerate(prompts)]
    assert_all_greedy(name, drive(llm, jobs))


@pytest.mark.parametrize(("name", "block_size"), in_turns(FAMILIES, [1, 4, 32]))
def test_blocks_of_any_size(name: str, block_size: int) -> None:
    llm = make_llm(name, block_size=block_size, num_kv_blocks=600 // block_size)
    jobs = [Job(prompt, greedy_params(12), arrival=i) for i, prompt in enumerate(PROMPTS)]
    assert_all_greedy(name, drive(llm, jobs))


@pytest.mark.parametrize(
    ("name", "caching"),
    [
        *quick([(name, True) for name in KINDS], product(ARCHITECTURES, [True])),
        *quick([("gpt2", False)], product(FAMILIES, [False])),
    ],
)
def test_a_pool_too_small_for_all(name: str, caching: bool) -> None:
    options = {"block_size": 4, "num_kv_blocks": 13 if name in HYBRIDS else 15, "max_num_batched_tokens": 24}
    llm = make_llm(name, **options, enable_prefix_caching=caching, watermark=0)
    jobs = drive(llm, [Job(prompt, arrival=i) for i, prompt in enumerate((*PROMPTS, *PROMPTS[-4:]))])
    assert num_preemptions(jobs) > 2, "the pool is not small enough"
    assert_all_greedy(name, jobs)


@pytest.mark.parametrize("name", ONE_OF_EACH_CACHE)
def test_every_victim_is_swapped(name: str) -> None:
    """Compare with an undisturbed run, which the tests above hold to the reference."""
    options = {"block_size": 4, "max_num_batched_tokens": 24, "enable_prefix_caching": False, "watermark": 0}
    expected = drive(make_llm(name, **options, num_kv_blocks=160), [Job(prompt) for prompt in PROMPTS[1:8]])
    llm = make_llm(name, **options, num_kv_blocks=20, recovery_policy="swap", swap_space="4MiB")
    scheduler, moved = llm.engine.scheduler, Counter[str]()
    llm.engine.on_stats.append(lambda stats: moved.update(stats.recovery.swapped_blocks if stats.recovery else {}))

    def preempt(step: int) -> None:
        if step % 4 == 3 and len(scheduler.queue.running) > 1:
            scheduler.planner.preempt_for(scheduler.queue.running[0])

    found = drive(llm, [Job(prompt, arrival=i) for i, prompt in enumerate(PROMPTS[1:8])], preempt)
    assert num_preemptions(found) > num_preemptions(expected) == 0
    assert moved["load"] >= moved["save"] > 8
    assert [outputs(job) for job in found] == [outputs(job) for job in expected]


@pytest.mark.parametrize(("name", "budget"), in_turns(FAMILIES, [5, 64]))
def test_preemption_at_random_moments(name: str, budget: int) -> None:
    llm = make_llm(name, block_size=4, max_num_batched_tokens=budget)
    preemptor = Preemptor(llm, 0)
    moments = random.Random(budget)

    def before_step(step: int) -> None:
        if step < 200 and moments.random() < 0.4:
            preemptor.preempt_someone()

    jobs = drive(llm, [Job(prompt, greedy_params(14), arrival=i // 2) for i, prompt in enumerate(PROMPTS)], before_step)
    assert num_preemptions(jobs) > 3
    assert_all_greedy(name, jobs)


@one_of_each_family
def test_a_prompt_that_was_computed_before(name: str) -> None:
    llm = make_llm(name, block_size=4)
    prompt = PROMPTS[4]  # 33 tokens: 8 full blocks
    for expected_hits in (0, 32, 32):
        job = Job(prompt)
        assert_all_greedy(name, drive(llm, [job]))
        assert job.output.num_cached_tokens == expected_hits


@one_of_each_family
def test_a_prompt_that_is_a_whole_number_of_blocks_leaves_one_token_to_compute(name: str) -> None:
    llm = make_llm(name, block_size=4)
    for _ in range(2):
        job = Job(PROMPTS[2])  # 16 tokens
        assert_all_greedy(name, drive(llm, [job]))
    assert job.output.num_cached_tokens == 12


@pytest.mark.parametrize(("name", "arrival"), in_turns(FAMILIES[:4], [0, 1, 5]))
def test_prompts_that_begin_alike_in_one_step_and_in_later_ones(name: str, arrival: int) -> None:
    llm = make_llm(name, block_size=4)
    jobs = drive(llm, [Job(prompt, greedy_params(10), arrival=arrival * i) for i, prompt in enumerate(PROMPTS[5:])])
    assert_all_greedy(name, jobs)
    assert [job.output.num_cached_tokens for job in jobs[1:]] == [16, 20, 24]


@one_of_each_family
def test_a_conversation_finds_its_own_earlier_turns(name: str) -> None:
    llm = make_llm(name, block_size=4)
    prompt = tuple(PROMPTS[1])
    num_cached = 0
    for turn in range(4):
        job = Job(prompt, greedy_params(7))
        assert_all_greedy(name, drive(llm, [job]))
        assert job.output.num_cached_tokens == num_cached
        so_far = prompt + tuple(outputs(job)[0])
        num_cached = (len(so_far) - 1) // 4 * 4  # the last token was never fed back, and only full blocks are found
        prompt = so_far + tuple(random_ids(3, 50 + turn))


@one_of_each_family
def test_parallel_samples_share_a_prompt_and_differ_only_by_chance(name: str) -> None:
    llm = make_llm(name, block_size=4)
    jobs = [Job(PROMPTS[i], greedy_params(10, n=3), arrival=i) for i in (0, 3, 4)]  # prompts that end inside a block
    assert_all_greedy(name, drive(llm, jobs))
    assert len({tuple(ids) for job in jobs[:1] for ids in outputs(job)}) == 1


@one_of_each_family
def test_parallel_samples_with_a_seed_are_the_same_in_any_company(name: str) -> None:
    params = SamplingParams(n=3, seed=7, temperature=0.9, max_tokens=10, ignore_eos=True)
    alone = drive(make_llm(name), [Job(PROMPTS[3], params)])[0]
    assert len({tuple(ids) for ids in outputs(alone)}) == 3
    llm = make_llm(name, block_size=4, num_kv_blocks=20, max_num_batched_tokens=9, watermark=0)
    jobs = drive(llm, [*(Job(prompt) for prompt in PROMPTS[:4]), Job(PROMPTS[3], params, arrival=2)])
    assert outputs(jobs[-1]) == outputs(alone)
    assert_all_greedy(name, jobs[:-1])


@one_of_each_family
def test_without_prefix_caching(name: str) -> None:
    llm = make_llm(name, block_size=4, enable_prefix_caching=False)
    for _ in range(2):
        jobs = drive(llm, [Job(prompt, greedy_params(8)) for prompt in PROMPTS[3:]])
        assert_all_greedy(name, jobs)
        assert all(job.output.num_cached_tokens == 0 for job in jobs)


@one_of_each_family
def test_an_end_token_ends_the_output_where_it_ends_the_references(name: str) -> None:
    llm = make_llm(name)
    expected = greedy(name, PROMPTS[3]).token_ids
    end = expected[7]
    llm.engine.eos_token_ids = (end,)
    job = drive(llm, [Job(PROMPTS[3], greedy_params(ignore_eos=False))])[0]
    assert outputs(job) == [list(expected[: expected.index(end) + 1])]
    assert job.output.outputs[0].finish_reason == "stop"
    assert job.output.outputs[0].stop_reason is None


@one_of_each_family
def test_a_context_filled_to_its_last_token(name: str) -> None:
    llm = make_llm(name, block_size=4, num_kv_blocks=10)
    assert llm.engine.max_model_len == 40
    job = drive(llm, [Job(PROMPTS[4], greedy_params(400))])[0]
    assert len(outputs(job)[0]) == 7
    assert_same_tokens(name, PROMPTS[4], outputs(job)[0])
    assert job.output.outputs[0].finish_reason == "length"


@one_of_each_family
def test_samples_that_together_outgrow_the_pool_run_in_turns(name: str) -> None:
    llm = make_llm(name, block_size=4, num_kv_blocks=10, max_num_seqs=6)
    jobs = [Job(PROMPTS[3], greedy_params(NUM_TOKENS, n=5)), Job(PROMPTS[2], greedy_params(NUM_TOKENS), arrival=3)]
    assert_all_greedy(name, drive(llm, jobs))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@one_of_each_family
def test_generate_gives_the_references_tokens(name: str, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    llm = make_llm(name, device=device)
    found = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in PROMPTS], greedy_params(), use_tqdm=False)
    for prompt, output in zip(PROMPTS, found, strict=True):
        assert output.prompt_token_ids == list(prompt)
        assert_same_tokens(name, prompt, output.outputs[0].token_ids)
