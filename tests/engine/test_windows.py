"""Blocks behind the windows of a model give memory back, and no token changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from engine.harness import Job, Preemptor, assert_all_greedy, drive, greedy_params, make_llm, random_ids
from parameters import quick
from quire.runner.kv_cache import KVCache

SHARED = random_ids(96, 1)
PROMPTS = (SHARED, SHARED[:70] + random_ids(30, 2), random_ids(120, 3), SHARED + random_ids(20, 4), random_ids(9, 5))


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Overwrite the values of memory that is given back. Records whether it was all of a block's."""
    record: list[bool] = []

    def give_back(cache: KVCache, returned: Sequence[tuple[int, bool]]) -> None:
        for block, is_whole in returned:
            cache.blocks[block, 0 if is_whole else cache.layout.thin_numel :] = (
                50.0  # masked values may be read, times zero
            )
            record.append(is_whole)

    monkeypatch.setattr(KVCache, "give_back", give_back)
    return record


@pytest.mark.parametrize(
    ("name", "num_blocks"),
    quick(
        [("mistral-window", 20), ("gemma4-shared", 28)],
        [("mistral-window", 20), *product(("gemma2", "gemma3", "gemma4-shared", "qwen2-window"), [28])],
    ),
)
def test_a_pool_holds_more_than_its_blocks_and_the_tokens_are_the_same(
    name: str, num_blocks: int, given_back: list[bool]
) -> None:
    llm = make_llm(
        name, block_size=4, num_kv_blocks=num_blocks, max_num_batched_tokens=8, max_num_seqs=3, watermark=0,
        kv_audit_rate=0.0,
    )  # fmt: skip
    longest = llm.engine.max_model_len
    assert longest > 4 * num_blocks
    preemptor = Preemptor(llm, 7)
    jobs = [Job(prompt, greedy_params(12), arrival=9 * at) for at, prompt in enumerate([*PROMPTS, *PROMPTS])]
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 13 == 5 else None)
    assert_all_greedy(name, jobs)
    assert given_back.count(False) > 20
    assert any(output.num_cached_tokens for output in (job.output for job in jobs))


def test_a_sequence_alone_may_be_as_long_as_the_engine_says(given_back: list[bool]) -> None:
    llm = make_llm("mistral-window", block_size=4, num_kv_blocks=10, max_num_batched_tokens=8, max_num_seqs=2)
    longest = llm.engine.max_model_len
    assert longest > 200
    job = Job(random_ids(longest - 10, 6), greedy_params(10))
    drive(llm, [job])
    assert_all_greedy("mistral-window", [job])
    assert given_back
