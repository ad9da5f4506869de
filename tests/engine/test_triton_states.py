"""Greedy float32 tokens of hybrids equal those of `transformers` with our Triton kernels: on a GPU, or by the
interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from engine.drafting import Adversary, draft_from, share_right
from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    assert_all_greedy,
    drive,
    greedy,
    greedy_params,
    make_llm,
    num_preemptions,
)
from parameters import quick
from quire import BeamSearchParams, SamplingParams
from quire.outputs import TransferReport
from simulated_gpu import fake_graphs, simulated_gpu

SMALL: dict[str, Any] = {
    "device": "cuda", "block_size": 4, "max_num_batched_tokens": 24, "max_num_seqs": 3, "watermark": 0
}  # fmt: skip
PLACES: dict[str, dict[str, Any]] = {
    "host": {"swap_space": "8MiB", "recovery_policy": "swap", "enable_prefix_caching": False},
    "file": {"swap_dir": True, "recovery_policy": "swap", "enable_prefix_caching": False},
    "disk": {"kv_dir": True, "kv_dir_keep_prompts": True},
}
each_kind = pytest.mark.parametrize("name", quick(["lfm2"], ["lfm2", "qwen3_5", "qwen3_next", "granite4-moe"]))


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with simulated_gpu(monkeypatch):
        yield


def check_records(llm: Any) -> None:
    """Blocks have records of states only where the pool counts whole ones."""
    records, pool = llm.engine.runner.cache.records, llm.engine.scheduler.kv.pool
    num_ids = len(pool.ref_counts)
    held = {block for block in range(num_ids) if records.of[block, 1] >= 0}
    assert held
    assert held.isdisjoint(pool.thin)
    assert held.isdisjoint(pool._without_memory)
    assert sorted([*records._free, *records.of[records.of >= 0]]) == [*range(len(llm.engine.runner.cache.blocks))]


@pytest.mark.skipif(torch.cuda.is_available(), reason="records with a stand-in")
@pytest.mark.timeout(600)
@each_kind
def test_preempted_requests_chunks_and_prefixes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_graphs(monkeypatch) as graphs:
        llm = make_llm(name, **SMALL, num_kv_blocks=14)
        preemptor = Preemptor(llm, 0)
        at_start = len(graphs) + sum(graph.num_replays for graph in graphs)  # the first engine of a kind is profiled

        def before_step(step: int) -> None:
            if step == 4:
                preemptor.preempt_someone()

        prompts = PROMPTS[5], PROMPTS[4], PROMPTS[8]
        jobs = drive(
            llm, [Job(prompt, greedy_params(5), arrival=2 * i) for i, prompt in enumerate(prompts)], before_step
        )
    assert num_preemptions(jobs) > 0
    assert jobs[2].output.num_cached_tokens == 20, "no state was found"
    assert len(graphs) + sum(graph.num_replays for graph in graphs) - at_start == 5, "steps with graphs"
    check_records(llm)
    assert_all_greedy(name, jobs)


@pytest.mark.parametrize("place", quick([], PLACES))
def test_blocks_and_states_come_back_from_elsewhere(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {name: str(tmp_path) if value is True and name.endswith("dir") else value
               for name, value in PLACES[place].items()}  # fmt: skip
    moved: set[str] = set()
    for _ in range(2 if place == "disk" else 1):
        llm: Any = make_llm("lfm2", **SMALL, enforce_eager=True, **options)
        runner = llm.engine.runner
        worker = runner.disk.worker if place == "disk" else runner.transfer_worker
        add = worker._add

        def note(report: TransferReport, add: Any = add) -> None:
            if not report.failed and not report.is_cancelled:
                moved.add(report.kind)
            add(report)

        monkeypatch.setattr(worker, "_add", note)

        def before_step(step: int, scheduler: Any = llm.engine.scheduler) -> None:
            if step == 6 and place != "disk":
                scheduler.planner.preempt_for(scheduler.queue.running[0])

        jobs = drive(llm, [Job(prompt, greedy_params(12)) for prompt in PROMPTS[3:5]], before_step)
        assert_all_greedy("lfm2", jobs)
        check_records(llm)
    assert moved == {"save", "load"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lfm2", "qwen3_5", "granite4"])
def test_drafts(name: str) -> None:
    llm = make_llm(name, **SMALL, enforce_eager=True, speculation="lookup", speculative_tokens=3)
    draft_from(llm, Adversary(lambda seq: greedy(name, tuple(seq.token_ids[: seq.num_prompt_tokens])).token_ids, 6))
    jobs = drive(llm, [Job(prompt, greedy_params(8)) for prompt in PROMPTS[2:4]])
    assert 0.2 < (share_right(llm) or 0) < 1
    assert_all_greedy(name, jobs)
    check_records(llm)


@pytest.mark.slow
def test_samples_and_beams_share_blocks() -> None:
    def run_on(device: str) -> list[list[int]]:
        llm = make_llm("lfm2", **SMALL | {"device": device, "max_num_seqs": 4}, enforce_eager=True)
        kinds = SamplingParams(temperature=0.8, seed=1, max_tokens=6, n=2), BeamSearchParams(beam_width=2, max_tokens=6)
        jobs = drive(llm, [Job(PROMPTS[1], params) for params in kinds])
        return [each.token_ids for job in jobs for each in job.output.outputs]

    assert run_on("cuda") == run_on("cpu")
