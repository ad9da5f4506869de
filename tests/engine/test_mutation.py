"""The tests are sensitive: one wrong cached block changes nearly every output, for each architecture.

Without this, "same tokens" would also hold for models that ignore their cache.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from checkpoints import ONE_OF_EACH_CACHE
from engine.harness import Job, drive, greedy, greedy_params, greedy_together, make_llm, outputs, random_ids
from parameters import quick
from quire import LLM, SamplingParams
from quire.core import kv_cache_manager
from quire.ops.arrays import as_tensor

NUM_PROMPTS = 12
NUM_TOKENS = 8
BLOCK_SIZE = 4
#: 4 full blocks and a little more: the replaced block is well before the end
MUTATED_PROMPTS = tuple(tuple(random_ids(18, 1000 + i)) for i in range(NUM_PROMPTS))

Mutation = Callable[[torch.Tensor, list[int]], None]


def replace_with_a_strangers(cache: torch.Tensor, blocks: list[int]) -> None:
    stranger = next(b for b in range(len(cache)) if b not in blocks and cache[b].any())
    cache[blocks[1]] = cache[stranger]


def replace_with_noise(cache: torch.Tensor, blocks: list[int]) -> None:
    content = cache[blocks[2]]
    cache[blocks[2]] = torch.randn(content.shape, generator=torch.Generator().manual_seed(0)) * content.std()


def share_of_changed_outputs(llm: LLM, name: str, mutation: Mutation | None) -> float:
    """Return the share over all prompts at once, each of which finds its blocks in the cache."""
    expected = greedy_together(name, MUTATED_PROMPTS, NUM_TOKENS)
    cache = as_tensor(llm.engine.runner.cache.blocks)
    original = cache.clone()
    for blocks in [cached_blocks(llm, prompt) for prompt in MUTATED_PROMPTS]:
        if mutation is not None:
            mutation(cache, blocks)
    jobs = drive(llm, [Job(prompt, greedy_params(NUM_TOKENS)) for prompt in MUTATED_PROMPTS])
    cache.copy_(original)
    assert [job.output.num_cached_tokens for job in jobs] == [16] * NUM_PROMPTS, "they did not use the blocks"
    pairs = zip(jobs, expected, strict=True)
    return sum(tuple(outputs(job)[0]) != greedy.token_ids for job, greedy in pairs) / NUM_PROMPTS


def cached_blocks(llm: LLM, prompt: tuple[int, ...]) -> list[int]:
    """Return the blocks that the prompt would find."""
    answer = llm.engine.add_request(list(prompt), greedy_params(1))
    blocks = llm.engine.scheduler.kv.find_prefix(answer.request.sequences[0])
    llm.engine.abort(answer.request.request_id)
    return blocks


@pytest.mark.parametrize("name", ONE_OF_EACH_CACHE)
def test_one_wrong_cached_block_changes_nearly_every_output(name: str) -> None:
    llm = make_llm(name, block_size=BLOCK_SIZE, num_kv_blocks=200)
    drive(llm, [Job(prompt, greedy_params(1)) for prompt in MUTATED_PROMPTS])
    assert share_of_changed_outputs(llm, name, None) == 0
    assert share_of_changed_outputs(llm, name, replace_with_a_strangers) >= 0.9
    assert share_of_changed_outputs(llm, name, replace_with_noise) >= 0.9
    assert share_of_changed_outputs(llm, name, None) == 0, "the cache is as it was"


@pytest.mark.parametrize("name", quick(["llama"], ["llama", "gpt2", "opt"]))
def test_wrong_sharing_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without the preceding content would share blocks of different contexts."""

    def keys_without_a_chain(keys, root, spans, token_ids, block_size, num_blocks):  # type: ignore[no-untyped-def]
        for i in range(len(keys), num_blocks):
            keys.append(bytes(token_ids[i * block_size : (i + 1) * block_size]))

    monkeypatch.setattr(kv_cache_manager, "extend_keys", keys_without_a_chain)
    llm = make_llm(name, block_size=BLOCK_SIZE)
    end = tuple(random_ids(14, 77))
    prompts = [tuple(random_ids(4, 2000)) + end, *(tuple(random_ids(4, i)) + end for i in range(10))]
    drive(llm, [Job(prompts[0], greedy_params(NUM_TOKENS))])
    num_wrong = 0
    for prompt in prompts[1:]:
        # Its first block is cached, so that lookup goes on to the following ones.
        drive(llm, [Job(prompt[:5], greedy_params(1))])
        job = drive(llm, [Job(prompt, greedy_params(NUM_TOKENS))])[0]
        assert job.output.num_cached_tokens == 16
        num_wrong += tuple(outputs(job)[0]) != greedy(name, prompt, NUM_TOKENS).token_ids
    assert num_wrong >= 9


@pytest.mark.parametrize("name", quick(["gpt2"], ["llama", "gpt2", "opt-350m"]))
def test_a_missing_copy_on_write_is_seen(name: str) -> None:
    """Samples that write into one shared block corrupt each other's tokens."""
    params = SamplingParams(n=3, seed=1, max_tokens=12, ignore_eos=True)
    prompts = [tuple(random_ids(18, i)) for i in range(6)]

    def run(is_broken: bool) -> list[list[list[int]]]:
        llm = make_llm(name, block_size=16)
        if is_broken:
            llm.engine.runner.cache.write = lambda blocks, values: None  # type: ignore[method-assign]
        return [outputs(drive(llm, [Job(prompt, params)])[0]) for prompt in prompts]

    right, wrong = run(False), run(True)
    num_changed = sum(a != b for x, y in zip(right, wrong, strict=True) for a, b in zip(x, y, strict=True))
    assert num_changed >= 0.6 * 3 * len(prompts)  # one of three keeps the block in which it began
