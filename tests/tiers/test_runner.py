"""The runner moves blocks between steps, and computes on them as if they had never moved."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache as cached
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.null_runner import NullRunner
from quire.assembly import LoadedModel
from quire.assembly import load as load_model
from quire.assembly.runner import make_attention
from quire.attention.interface import KVLayout
from quire.config import EngineConfig, SchedulerConfig
from quire.engine.engine import Engine, ModelFacts
from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput, StepOutput, TransferReport
from quire.runner.batch import InputBatch
from quire.runner.kv_cache import KVCache
from quire.runner.model_runner import _IDLE_WAIT_S, ModelRunner
from quire.sampling_params import SamplingParams
from quire.tiers.disk_space import DiskSpace
from quire.tiers.swap_space import HostSpace
from quire.tiers.transfer_worker import TransferWorker
from tiers.blocks import as_bytes, joined, load, make_space, save

BLOCK_SIZE = 4
NUM_BLOCKS = 12
PROMPT = [7, 3, 9, 1, 5, 5, 2, 8, 4, 6]  # two full blocks, and half of one
OTHER = [1, 2, 3, 4, 5, 6, 7, 8]


@cached
def tiny() -> LoadedModel:
    return load_model(EngineConfig("random:tiny", device="cpu", dtype="float32", use_tqdm=False))


def make_runner(kind: str, tmp_path: Path) -> ModelRunner:
    model = tiny().model
    shape = model.config
    layout = KVLayout(model.attention_layers(), BLOCK_SIZE)
    cache = KVCache(NUM_BLOCKS, layout, model.dtype)
    link = TransferWorker(cache.blocks, make_space(kind, tmp_path, 4, layout.block_bytes(model.dtype.itemsize)))
    attention = make_attention(cache.blocks, layout)
    return ModelRunner(model, cache, attention, InputBatch(4, 64, BLOCK_SIZE), shape.vocab_size, link)


@pytest.fixture(params=["host", "disk"])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModelRunner]:
    runner = make_runner(request.param, tmp_path)
    link = runner.transfer_worker
    assert link is not None
    yield runner
    link.close()


def step(seq_id: int, tokens: list[int], table: list[int], num_computed: int = 0, **more: object) -> SchedulerOutput:
    """Build a step that computes the rest of one new sequence."""
    new = NewSequence(
        seq_id, 0, tokens, len(tokens), num_computed, table, SamplingParams(temperature=0, logprobs=5), seed=0
    )
    num_new = len(tokens) - num_computed
    return SchedulerOutput(
        seq_id, [seq_id], [num_new], [new], total_tokens=num_new, **more  # type: ignore[arg-type]
    )  # fmt: skip


def transfers_only(*transfers: BlockTransfer) -> SchedulerOutput:
    return SchedulerOutput(99, transfers=list(transfers))


def finish(runner: ModelRunner, first: StepOutput) -> list[str]:
    """Return the kinds of all reports in order; each transfer is reported once."""
    reports = list(first.transfers)
    assert runner.transfer_worker is not None
    while runner.transfer_worker.num_outstanding:
        began_at = time.monotonic()
        result = runner.execute(transfers_only())
        waited_s = time.monotonic() - began_at
        assert result.transfers or waited_s >= _IDLE_WAIT_S, "a step without sequences waits for a report"
        reports += result.transfers
    assert all(not report.failed for report in reports)
    return [report.kind for report in joined(reports)]


def test_saved_overwritten_and_loaded_elsewhere_a_sequence_goes_on_as_before(runner: ModelRunner) -> None:
    expected = runner.execute(step(1, PROMPT, [3, 4, 5]))
    before = as_bytes(runner.cache).clone()
    # In one step the first sequence ends, its blocks are saved, and another one computes into them.
    first = runner.execute(
        step(2, OTHER, [4, 3], removed_seq_ids=[1], transfers=[save(3, 2, op_id=1), save(4, 0, op_id=2)])
    )
    assert not torch.equal(as_bytes(runner.cache)[3], before[3])
    assert finish(runner, first) == ["save"]
    first = runner.execute(transfers_only(load(2, 9, 3, op_id=3), load(0, 8, 4, op_id=4)))
    assert finish(runner, first) == ["load"]
    assert torch.equal(as_bytes(runner.cache)[9], before[3])
    assert torch.equal(as_bytes(runner.cache)[8], before[4])
    back = runner.execute(step(3, PROMPT, [9, 8, 7], num_computed=8))
    assert back.sampled == expected.sampled
    for was, now in zip(expected.logprobs[1], back.logprobs[3], strict=True):
        assert was.top_ids == now.top_ids
        assert now.top_logprobs == pytest.approx(was.top_logprobs, abs=1e-5)


def test_the_front_is_computed_while_the_back_is_loaded(runner: ModelRunner) -> None:
    """A sequence may start with blocks that the same step loads; the runner does not clear them later."""
    expected = runner.execute(step(1, PROMPT, [3, 4, 5]))
    before = as_bytes(runner.cache).clone()
    # Only the front: a batch of another length rounds differently, on some processors more than on others.
    runner.execute(step(2, PROMPT[:4], [10], removed_seq_ids=[1]))
    front_alone = as_bytes(runner.cache)[10].clone()
    first = runner.execute(step(3, OTHER, [4, 3], removed_seq_ids=[2], transfers=[save(4, 0)]))
    finish(runner, first)
    front = step(4, PROMPT, [9, 8, 7], transfers=[load(0, 8, 4)])
    front.num_scheduled_tokens = [4]
    front.total_tokens = 4
    first = runner.execute(front)
    assert finish(runner, first) == ["load"]
    assert torch.equal(as_bytes(runner.cache)[8], before[4])
    assert torch.equal(as_bytes(runner.cache)[9], front_alone)
    back = runner.execute(step(5, PROMPT, [9, 8, 6], num_computed=8, removed_seq_ids=[4]))
    assert back.sampled == expected.sampled


def test_copies_are_done_between_saves_and_loads(runner: ModelRunner) -> None:
    runner.execute(step(1, PROMPT, [3, 4, 5]))
    before = as_bytes(runner.cache).clone()
    copy = BlockTransfer(1, "copy", 4, 3)  # over the saved block, which is loaded over the copy's source
    first = runner.execute(transfers_only(load(0, 4, 3, op_id=3), copy, save(3, 0, op_id=2)))
    assert sorted(finish(runner, first)) == ["load", "save"]
    assert torch.equal(as_bytes(runner.cache)[3], before[4])
    assert torch.equal(as_bytes(runner.cache)[4], before[3])


def test_a_step_that_fails_loses_no_report(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.execute(step(1, PROMPT, [3, 4, 5]))
    before = as_bytes(runner.cache).clone()

    def fail(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    for owner, name in ((runner.attention, "plan"), (runner.cache, "clear")):
        transfers = [save(3, 0, op_id=1), load(0, 10, 3, op_id=2)]
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                runner.execute(step(2, OTHER, [6, 7], transfers=transfers))
        assert finish(runner, runner.execute(SchedulerOutput(9, removed_seq_ids=[2]))) == ["save", "load"]
        assert torch.equal(as_bytes(runner.cache)[10], before[3])


class GatedMemory(HostSpace):
    """Returns no data before the gate opens."""

    gate = threading.Event()

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        assert self.gate.wait(60)
        return super().read(slots, keys, into)


def test_a_step_with_sequences_does_not_wait_for_the_link(tmp_path: Path) -> None:
    runner = make_runner("host", tmp_path)
    space = GatedMemory(4, as_bytes(runner.cache).shape[1])
    runner.transfer_worker = TransferWorker(runner.cache.blocks, space)
    result = runner.execute(step(1, PROMPT, [3, 4, 5], transfers=[load(0, 9, 0, op_id=1)]))
    assert (result.seq_ids, result.transfers) == ([1], [])
    assert runner.execute(transfers_only()).transfers == [], "it waits, but not for ever"
    threading.Timer(0.005, space.gate.set).start()
    (report,) = runner.execute(transfers_only()).transfers
    assert (report.op_ids, report.failed) == ([1], [1]), "nothing was ever saved there"
    runner.transfer_worker.close()


class SlowDisk(DiskSpace):
    """Writes no data before the gate opens."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gate = threading.Event()

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        assert self.gate.wait(60)
        return super().write(slots, keys, blocks)


def test_a_step_says_how_long_it_stood_still_although_the_disk_is_not_done(tmp_path: Path) -> None:
    runner = make_runner("disk", tmp_path)
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    disk = SlowDisk(tmp_path, 4, as_bytes(runner.cache).shape[1], b"namespace")
    runner.transfer_worker = TransferWorker(runner.cache.blocks, disk, clock=clock)
    result = runner.execute(step(1, PROMPT, [3, 4, 5], transfers=[save(0, 0, op_id=1)]))
    assert (result.stall_s, result.transfers) == (1.0, []), "before and after staging"
    later = runner.execute(SchedulerOutput(2, removed_seq_ids=[1]))
    assert (later.stall_s, later.transfers) == (0.0, [])
    disk.gate.set()
    assert finish(runner, later) == ["save"]
    runner.transfer_worker.close()


@pytest.mark.parametrize("fails", [False, True], ids=["a step that works", "a step that fails"])
def test_what_a_step_cancels_is_of_earlier_steps_or_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    runner = make_runner("disk", tmp_path)
    disk = SlowDisk(tmp_path, 4, as_bytes(runner.cache).shape[1], b"namespace")
    assert runner.transfer_worker is not None
    runner.transfer_worker.close()
    runner.transfer_worker = TransferWorker(runner.cache.blocks, disk)
    runner.execute(step(1, PROMPT, [3, 4, 5], transfers=[save(0, 0, op_id=1)]))
    runner.execute(step(2, OTHER, [6, 7], transfers=[save(1, 1, op_id=2), load(2, 8, 1, op_id=3)]))
    transfers = [save(2, 2, op_id=4), save(3, 3, op_id=5), load(0, 9, 0, op_id=6), load(0, 10, 0, op_id=7)]
    cancelling = SchedulerOutput(3, cancelled=[2, 3, 4, 7, 77], transfers=transfers)
    with monkeypatch.context() as patch:
        if fails:
            patch.delattr(KVCache, "clear")
        with pytest.raises(AttributeError, match="clear") if fails else nullcontext():
            runner.execute(cancelling)
    disk.gate.set()
    reports: list[TransferReport] = []
    while runner.transfer_worker.num_outstanding:
        reports += runner.execute(transfers_only()).transfers
    ends = [(report.op_ids, report.is_cancelled, report.failed) for report in reports]
    assert ends == [
        ([1], False, []),
        ([2], True, []),
        ([3], True, []),
        ([4], True, []),
        ([5], False, []),
        ([6], False, []),
        ([7], True, []),
    ]
    runner.transfer_worker.close()
    runner.transfer_worker = None
    runner.execute(SchedulerOutput(4, cancelled=[2]))


class StallingRunner(NullRunner):
    """A step takes 10 ms; every tenth stalls for 12 ms more, and its blocks are written many steps later."""

    now = 0.0

    def execute(self, out: SchedulerOutput) -> StepOutput:
        result = super().execute(out)
        result.stall_s = 0.012 if out.step_id % 10 == 0 else 0.0
        if out.step_id % 10 == 5:
            result.transfers.append(TransferReport("save", [], 4096, copy_s=0.05))
        self.now += 0.010 + result.stall_s
        return result


def test_the_step_that_stood_still_is_the_one_that_it_is_taken_off() -> None:
    config = SchedulerConfig(num_blocks=64, block_size=BLOCK_SIZE, max_model_len=128, max_num_batched_tokens=64)
    runner = StallingRunner(InputBatch(4, 128, BLOCK_SIZE))
    engine = Engine(config, runner, ModelFacts(100), clock=lambda: runner.now)
    observed: list[float] = []
    engine.costs.model.observe_step = lambda shape, seconds: observed.append(seconds)  # type: ignore[method-assign]
    stalls: list[float] = []
    engine.on_stats.append(lambda stats: stalls.append(stats.stall_s))
    engine.add_request(PROMPT, SamplingParams(max_tokens=60, ignore_eos=True, temperature=0))
    while engine.has_unfinished():
        engine.step()
    assert len(observed) == 60
    assert observed == pytest.approx([0.010] * 60)
    assert sum(stalls) == pytest.approx(6 * 0.012)


def test_a_step_without_sequences_and_without_transfers_does_not_wait(runner: ModelRunner) -> None:
    assert runner.execute(SchedulerOutput(1)).transfers == []
    runner.transfer_worker = None
    assert runner.execute(SchedulerOutput(2)).transfers == []


def test_the_runner_that_computes_nothing_reports_what_it_was_asked_to_move() -> None:
    runner = NullRunner(InputBatch(2, 32, BLOCK_SIZE))
    out = step(
        1, PROMPT, [3, 4, 5], transfers=[load(0, 8, 4, op_id=4), save(1, 1, op_id=5), BlockTransfer(6, "copy", 0, 1)]
    )
    assert [(report.kind, report.op_ids) for report in runner.execute(out).transfers] == [("save", [5]), ("load", [4])]
