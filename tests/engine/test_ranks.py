"""A model on several ranks gives the tokens of one, under any conditions, for each architecture."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoints import ARCHITECTURES
from engine.documents import DOCUMENT, NUM_FULL, ChosenCosts, SpareCosts, ask
from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    assert_all_greedy,
    checkpoint,
    drive,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
)
from engine.thread_ranks import MultiRankLLM
from parameters import quick
from quire import BeamSearchParams, SamplingParams
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.request import Request
from quire.loading.errors import ModelLoadError
from quire.loading.modules.loaded_stages import read_stage_parts
from quire.loading.progress import load_listener
from quire.loading.stage_manifest import StageManifest
from quire.models.base import CausalLM
from quire.outputs import LoadProgress
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from quire.prompt import Prompt
from quire.system.user_cache import default_kv_dir
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.offline import list_namespaces

_SMALL = {
    "block_size": 4, "num_kv_blocks": 18, "max_num_batched_tokens": 16, "watermark": 0, "recovery_policy": "swap",
    "swap_space": "16MiB",
}  # fmt: skip


class Swapper(Preemptor):
    """Swaps out a request with whole blocks only, if there is one: behind a window, blocks are recomputed."""

    def choose_victim(self, running: Sequence[Request]) -> Request:
        has_thin = self.scheduler.kv.pool.has_thin
        whole = [each for each in running if not any(has_thin(seq.block_table) for seq in each.unfinished)]
        return super().choose_victim(whole or running)

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(RecoveryMode.SWAP)


def mixed_jobs() -> list[Job]:
    """Prompts with a common start, a repeated one, samples of it, and some that are shorter than any window."""
    jobs = [Job(PROMPTS[i], greedy_params(8), arrival=i) for i in (3, 5, 7, 8)]
    jobs.append(Job(PROMPTS[4], greedy_params(6, n=3), arrival=2))
    jobs.append(Job(PROMPTS[4], greedy_params(6), arrival=20))
    return jobs + [Job((*PROMPTS[1], i), greedy_params(6), arrival=i) for i in (2, 4, 6, 8)]


def run_under_pressure(name: str, num_ranks: int, jobs: list[Job]) -> MultiRankLLM:
    """Run in chunks, with random preemptions and swapping, checking the state of every rank."""
    llm = MultiRankLLM(name, num_ranks, **_SMALL)
    preemptor, swapper, moments = Preemptor(llm, 1), Swapper(llm, 1), random.Random(1)
    first = llm.engine.runner.batch  # type: ignore[attr-defined]

    def before_step(step: int) -> None:
        if step < 60 and step % 5 == 0:
            swapper.preempt_someone()
        elif step < 60 and moments.random() < 0.3:
            preemptor.preempt_someone()
        for worker in llm.workers:
            batch = worker.built.runner.batch
            assert batch.row_of == first.row_of
            assert (batch.num_computed == first.num_computed).all()

    drive(llm, jobs, before_step)
    assert num_preemptions(jobs) > 2
    assert llm.engine.cost_model.links["host"].loads.num_observed, "nothing was swapped in"
    return llm


@pytest.mark.parametrize("name", quick(["llama", "qwen3_5"], ARCHITECTURES))
def test_two_ranks_give_the_references_tokens_under_pressure(name: str) -> None:
    jobs = mixed_jobs()
    run_under_pressure(name, 2, jobs)
    assert_all_greedy(name, jobs)
    assert any(job.output.num_cached_tokens for job in jobs)


@pytest.mark.parametrize(
    "name",
    [
        "llama",  # whose two KV heads are on two ranks each
        *(  # takes 8 s; Granite's two groups of Mamba heads are for two ranks
            pytest.param(name, marks=pytest.mark.slow) for name in ARCHITECTURES if name not in ("llama", "granite4")
        ),
    ],
)
def test_four_ranks_of_which_some_have_the_same_kv_heads(name: str) -> None:
    jobs = mixed_jobs()
    run_under_pressure(name, 4, jobs)
    assert_all_greedy(name, jobs)


def test_blocks_are_compared_on_all_ranks() -> None:
    llm = MultiRankLLM("llama", 2)
    drive(llm, [Job(PROMPTS[4])])
    runner = llm.engine.runner
    assert runner.compare_blocks([(0, 0, True), (1, 1, True)]) == [None, None]
    llm.workers[0].built.runner.cache.blocks[1, -1] += 1.0
    same, different = runner.compare_blocks([(0, 0, True), (1, 2, True)])
    assert same is None
    assert different is not None


def test_what_sampling_asks_for_is_the_first_ranks_work() -> None:
    params = [
        SamplingParams(n=3, seed=7, temperature=0.9, top_p=0.9, max_tokens=8, ignore_eos=True),
        SamplingParams(seed=1, repetition_penalty=1.3, presence_penalty=0.5, min_tokens=4, max_tokens=8, logprobs=2),
        SamplingParams(temperature=0, max_tokens=8, prompt_logprobs=1, bad_words_token_ids=((3,),), ignore_eos=True),
        BeamSearchParams(3, max_tokens=6, ignore_eos=True),
    ]
    found = []
    for llm in (MultiRankLLM("qwen2", 2, max_num_batched_tokens=16), make_llm("qwen2", max_num_batched_tokens=16)):
        jobs = drive(llm, [Job(PROMPTS[3], each, arrival=i) for i, each in enumerate(params)])
        found.append([outputs(job) for job in jobs])
        assert jobs[2].output.prompt_logprobs is not None
    assert found[0] == found[1]


def test_a_step_that_raises_on_one_rank_or_all_fails_its_requests_and_no_more() -> None:
    llm = MultiRankLLM("llama", 2, **_SMALL)
    runners = [llm.engine.runner.first, llm.workers[0].built.runner]  # type: ignore[attr-defined]
    preemptor, moments = Preemptor(llm, 1), random.Random(1)
    fails_on = {4: runners, 9: runners[:1], 15: runners[1:]}

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the device is gone")

    def before_step(step: int) -> None:
        for runner in runners:  # a rank that fails alone does so after its part of the common work
            is_wrong = runner in fails_on.get(step, ())
            runner._compute = fail if is_wrong and step == 4 else type(runner)._compute.__get__(runner)
            runner._collect_reports = fail if is_wrong and step != 4 else type(runner)._collect_reports.__get__(runner)
        if moments.random() < 0.4:
            preemptor.preempt_someone()

    jobs = drive(
        llm, [Job(PROMPTS[i], greedy_params(8), arrival=2 * i) for i in (2, 3, 4, 5, 6, 7, 8, 4, 3)], before_step
    )
    failed = [job for job in jobs if job.output.error is not None]
    assert len(failed) >= 3
    assert all("the device is gone" in str(job.output.error) for job in failed)
    assert_all_greedy("llama", [job for job in jobs if job not in failed])
    assert len(failed) < len(jobs)


def test_documents_of_waiting_requests_are_computed_on_all_ranks() -> None:
    llm = MultiRankLLM("llama", 2, block_size=4, max_num_seqs=1)
    llm.engine.scheduler.decider.costs = SpareCosts(1.0, 0.0)
    jobs = drive(llm, [Job(PROMPTS[3], greedy_params(60)), ask(1), ask(2)])
    assert llm.engine.scheduler.counts.ahead_tokens == NUM_FULL
    assert_all_greedy("llama", jobs)


def test_a_model_in_stages_goes_up_on_all_ranks_at_once(tmp_path: Path) -> None:
    pack(str(checkpoint("llama")), StagePlan(3, ((0, 2), (1,))), tmp_path / "pack", use_tqdm=False)
    llm = MultiRankLLM(tmp_path / "pack", is_progressive=True)
    engine = llm.engine
    first = Job(PROMPTS[3])
    first.send(engine)
    while engine.stage < 2 or not first.answer.is_finished:  # type: ignore[union-attr]
        engine.step()
    jobs = drive(llm, mixed_jobs())
    assert_all_greedy("llama", jobs)
    assert {stage for job in jobs for stage, _ in job.output.stages} == {2}
    assert all(list(worker.built.runner.stages) == [2] for worker in llm.workers)


def test_a_stage_that_one_rank_alone_cannot_serve_is_left_out_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(str(checkpoint("llama")), StagePlan(3, ((0,), (2,), (1,))), tmp_path / "pack", use_tqdm=False)

    def read(manifest: StageManifest, number: int, model: CausalLM) -> Any:
        if number == 2 and model.split.group.rank == 1:
            raise ModelLoadError("the adapter cannot be read")
        return read_stage_parts(manifest, number, model)

    monkeypatch.setattr("quire.loading.modules.loaded_stages.read_stage_parts", read)
    told: list[LoadProgress] = []
    token = load_listener.set(told.append)
    llm = MultiRankLLM(tmp_path / "pack", is_progressive=True)
    load_listener.reset(token)
    stages = {llm.engine.stage}
    first = Job(PROMPTS[3])
    first.send(llm.engine)
    while llm.engine.stage < 3 or not first.answer.is_finished:  # type: ignore[union-attr]
        llm.engine.step()
        stages.add(llm.engine.stage)
    assert 2 not in stages
    assert_all_greedy("llama", drive(llm, mixed_jobs()))
    assert all(list(worker.built.runner.stages) == [3] for worker in llm.workers)
    assert "stage 2 is left out: rank 1 of 2: the adapter cannot be read" in [each.error for each in told]


def test_documents_kept_on_disk_are_found_while_every_rank_has_its_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.runner.ranks.merged_stores._PATIENCE_S", 0.0)
    expected = outputs(drive(make_llm("llama"), [ask()])[0])
    counts = []
    for run in range(4):
        llm = MultiRankLLM("llama", kv_dir=str(tmp_path / "kv"), block_size=4, costs=ChosenCosts(token_s=1, byte_s=0))
        job = drive(llm, [ask()])[0]
        assert outputs(job) == expected
        counts.append(job.output.cached_tokens.get("disk", 0))
        first, second = list_namespaces(tmp_path / "kv")
        assert first.num_blocks == second.num_blocks == NUM_FULL // 4
        if run == 3:
            assert (
                llm.engine.delete_documents([(Prompt(token_ids=list(DOCUMENT), documents=(NUM_FULL,)), 0)])
                == NUM_FULL // 4
            )
            assert [each.num_blocks for each in list_namespaces(tmp_path / "kv")] == [0, 0]
        for runner in (llm.engine.runner.first, llm.workers[0].built.runner):  # type: ignore[attr-defined]
            runner.disk.worker.close()
            runner.disk.store.close()
        if run == 1:
            other = next(each for each in (first, second) if each.facts["parallel_slice"] == "1/2")
            shutil.rmtree(tmp_path / "kv" / other.name)
    assert counts == [0, NUM_FULL, 0, NUM_FULL]


@pytest.mark.parametrize(("broken", "num_disks"), [("", 2), ("0/2", 0), ("1/2", 0)])
def test_the_default_directory_is_used_by_all_ranks_or_by_none(
    broken: str, num_disks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def open_store(*arguments: Any, **options: Any) -> BlockStore:
        if options["facts"]["parallel_slice"] == broken:
            raise ValueError("the disk is full")
        return BlockStore(*arguments, **options)

    monkeypatch.setattr("quire.assembly.runner.BlockStore", open_store)
    llm = MultiRankLLM("llama", kv_dir=str(default_kv_dir()), kv_dir_keep_prompts=True, block_size=4)
    runners = [llm.engine.runner.first, llm.workers[0].built.runner]  # type: ignore[attr-defined]
    assert sum(runner.disk is not None for runner in runners) == num_disks
    assert_all_greedy("llama", drive(llm, mixed_jobs()))
