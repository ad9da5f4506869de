"""Records of a GPU's cache suffice for the states of any schedule: engines on a CPU whose steps are counted beside."""

from __future__ import annotations

import random
from typing import Any

import pytest

from checkpoints import HYBRIDS
from engine.drafting import Adversary, draft_from
from engine.harness import PROMPTS, Job, Preemptor, drive, greedy, make_llm, num_preemptions
from parameters import quick
from quire.attention.block_records import KV, STATES, BlockRecords
from quire.attention.states import sequence_runs

CASES: dict[str, dict[str, Any]] = {
    "small": {"num_kv_blocks": 13, "watermark": 0},
    "swapped": {"num_kv_blocks": 20, "watermark": 0, "swap_space": "4MiB", "recovery_policy": "swap"},
    "drafts": {"num_kv_blocks": 24, "speculation": "lookup", "speculative_tokens": 3, "watermark": 0},
    "no prefixes": {"num_kv_blocks": 13, "watermark": 0, "enable_prefix_caching": False},
}


def count_records(llm: Any, monkeypatch: pytest.MonkeyPatch) -> BlockRecords:
    """Have the cache's calls counted as a GPU's cache does."""
    runner = llm.engine.runner
    cache, pool, size = runner.cache, llm.engine.scheduler.kv.pool, runner.batch.block_size
    num_ids = len(pool.ref_counts)
    num_records = cache.layout.num_records
    total = pool.num_blocks * num_records + (cache.num_ids - num_ids) * (num_records - 1)
    records = BlockRecords(cache.layout, cache.num_ids, total)

    def before(owner: Any, name: str, count: Any) -> None:
        method = getattr(owner, name)

        def call(*args: Any) -> Any:
            count(*args)
            return method(*args)

        monkeypatch.setattr(owner, name, call)

    def give_back(returned: Any) -> None:
        for block, is_whole in returned:
            records.release(block, slice(0 if is_whole else 1, None))

    def plan(batch: Any) -> None:
        for index, runs in enumerate(sequence_runs(batch, size)):
            used = batch.block_tables[index, : -(-int(batch.seq_lens[index]) // size)]
            assert (records.of[used, 0] >= 0).all()
            assert runs[0][2] < 0 or records.of[runs[0][2], 1] >= 0, "a lost state is read"
            for *_, target in runs:
                records.hold(target, STATES)
        held = {block for block in range(num_ids) if records.of[block, 1] >= 0}
        assert held.isdisjoint(pool.thin)
        assert held.isdisjoint(pool._without_memory)

    def write(blocks: list[int], values: Any) -> None:
        for block in blocks:
            records.hold(block, slice(None))

    def load(transfers: Any) -> None:
        for each in transfers:
            records.hold(each.dst, slice(len(each.records) or 1))

    before(cache, "give_back", give_back)
    before(cache, "clear", lambda blocks: [records.hold(block, KV) for block in blocks])
    before(cache, "write", write)
    before(cache, "prepare_loads", lambda transfers: load([*transfers]))
    before(cache, "copy_states", lambda moves: [records.hold(target, STATES) for _, target in moves])
    before(runner.attention, "plan", plan)
    return records


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", quick(["qwen3_5"], HYBRIDS))
def test_a_pool_too_small_for_all(name: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm(name, block_size=4, max_num_batched_tokens=24, **CASES[case])
    records = count_records(llm, monkeypatch)
    if case == "drafts":
        draft_from(llm, Adversary(lambda seq: greedy(name, tuple(seq.token_ids[: seq.num_prompt_tokens])).token_ids, 6))
    preemptor, moments = Preemptor(llm, 0), random.Random(case)

    def before_step(step: int) -> None:
        if step < 300 and moments.random() < 0.3:
            preemptor.preempt_someone()

    jobs = [Job(prompt, arrival=i // 2) for i, prompt in enumerate((*PROMPTS, *PROMPTS[-4:]))]
    assert num_preemptions(drive(llm, jobs, before_step)) > 2
    assert len(records._free) < llm.engine.scheduler.kv.pool.num_blocks * llm.engine.runner.cache.layout.num_records
