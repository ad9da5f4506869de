"""A prefix on disk: loaded, computed, or both at once, whichever brings the first token soonest."""

from __future__ import annotations

import pytest

from quire.config import SchedulerConfig
from quire.core.block_keys import PUBLIC_ONLY, extend_keys
from quire.core.costs.interface import StepShape
from quire.core.request import Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.outputs import SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.sampling_params import SamplingParams

BLOCK = 4
BLOCK_BYTES = 100
NUM_BLOCKS = 20  #: of the document
DOCUMENT = list(range(NUM_BLOCKS * BLOCK))


class PlainCosts:
    """A token takes a second, a block from disk `load_s`."""

    is_link_usable = True

    def __init__(self, load_s: float) -> None:
        self.load_s = load_s

    def step(self, shape: StepShape) -> float:
        return float(shape.num_tokens)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return float(num_tokens)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return 0.0

    def load(self, num_bytes: int, tier: str = "host") -> float:
        assert tier == "disk"
        return self.load_s * num_bytes / BLOCK_BYTES


class Bench:
    """A scheduler with the document on disk, and a runner that does nothing of itself."""

    def __init__(self, load_s: float, *, num_blocks: int = 64, **limits: int) -> None:
        config = SchedulerConfig(
            num_blocks=num_blocks,
            block_size=BLOCK,
            max_model_len=(NUM_BLOCKS + 4) * BLOCK,
            block_bytes=BLOCK_BYTES,
            has_disk_tier=True,
            **limits,
        )
        self.costs = PlainCosts(load_s)
        self.scheduler = Scheduler(config, costs=self.costs)
        self.keys: list[bytes] = []
        extend_keys(self.keys, b"", PUBLIC_ONLY, DOCUMENT, BLOCK, NUM_BLOCKS)
        self.scheduler.note_store(StoreChanges(added=self.keys))
        self._num_requests = 0

    def ask(self, **options: int) -> Request:
        number = self._num_requests = self._num_requests + 1
        request = Request(
            f"request-{number}",
            [*DOCUMENT, 1000 + number, 7],
            SamplingParams(max_tokens=2, **options),  # type: ignore[arg-type]
            arrival=number,
            max_tokens=2,
            documents=(len(DOCUMENT),),
        )
        self.scheduler.add(request)
        return request

    def step(self, *, arrived: int = 0, failed: int = 0) -> SchedulerOutput:
        """A step, with which so many of the loads that were begun and not cancelled are reported."""
        out = self.scheduler.schedule()
        self.begun = [t.op_id for t in out.transfers if t.kind == "load"]
        result = StepOutput(out.step_id)
        for seq_id in out.seq_ids:
            seq = self.scheduler._sequences[seq_id]
            if seq.num_computed_tokens == len(seq.token_ids):
                result.seq_ids.append(seq_id)
                result.sampled.append([5])
        under_way = [op for op, each in self.scheduler.swap._under_way.items() if each.transfer.kind == "load"]
        cancelled = [op for op in under_way if self.scheduler.swap._under_way[op].is_cancelled]
        going = [op for op in under_way if op not in cancelled]
        if cancelled:
            result.transfers.append(TransferReport("load", cancelled, 0, 0.0, is_cancelled=True, tier="disk"))
        if failed:
            result.transfers.append(TransferReport("load", going[:failed], 0, 0.0, failed=going[:failed], tier="disk"))
        if arrived:
            result.transfers.append(TransferReport("load", going[:arrived], arrived * BLOCK_BYTES, 1.0, tier="disk"))
        saves = [op for op, each in self.scheduler.swap._under_way.items() if each.transfer.kind == "save"]
        if saves:
            result.transfers.append(TransferReport("save", saves, len(saves) * BLOCK_BYTES, 1.0, tier="disk"))
        self.scheduler.update(result)
        self.scheduler.check_integrity()
        return out


@pytest.mark.parametrize(
    ("load_s", "way", "first_loaded"),
    [
        (0.1, "load", 0),
        (4.0, "both", 10),  # a block takes four seconds either way: half of them each
        (12.0, "both", 15),
        (200.0, "compute", None),  # loading a single block takes longer than computing all
    ],
)
def test_the_way_that_brings_the_first_token_soonest(load_s: float, way: str, first_loaded: int | None) -> None:
    bench = Bench(load_s)
    bench.ask()
    out = bench.step()
    loads = [transfer for transfer in out.transfers if transfer.kind == "load"]
    assert bench.scheduler.prefixes.ways == {way: 1}
    assert all(transfer.tier == "disk" for transfer in loads)
    assert [transfer.key for transfer in loads] == ([] if first_loaded is None else bench.keys[first_loaded:])
    computed = NUM_BLOCKS * BLOCK + 2 if first_loaded is None else first_loaded * BLOCK
    assert out.total_tokens == computed


def test_what_arrives_counts_as_cached_and_what_is_computed_does_not() -> None:
    bench = Bench(4.0)
    request = bench.ask()
    bench.step(arrived=10)
    assert bench.step().total_tokens == 2, "the question is all that is left"
    assert request.cached_tokens == {"disk": 10 * BLOCK}
    assert bench.scheduler.counts.prefix_hits == 10 * BLOCK


def test_a_block_that_is_lost_is_computed_and_not_asked_for_again() -> None:
    bench = Bench(0.1)
    request = bench.ask()
    bench.step(failed=1)
    assert bench.keys[0] not in bench.scheduler.swap.on_disk
    while not request.status.is_finished:
        bench.step(arrived=99)
    assert request.cached_tokens == {"disk": (NUM_BLOCKS - 1) * BLOCK}


def test_ten_requests_load_a_document_once() -> None:
    bench = Bench(0.1)
    requests = [bench.ask() for _ in range(10)]
    out = bench.step(arrived=NUM_BLOCKS)
    assert len([transfer for transfer in out.transfers if transfer.kind == "load"]) == NUM_BLOCKS
    out = bench.step()
    assert not out.transfers
    assert out.total_tokens == 10 * 2
    assert all(request.num_cached_tokens == len(DOCUMENT) for request in requests)


def test_blocks_that_are_late_are_computed_after_all() -> None:
    bench = Bench(0.1)
    request = bench.ask()
    bench.step(arrived=5)
    bench.costs.load_s = 50.0  # so it turns out
    out = bench.step()
    assert len(out.cancelled) == NUM_BLOCKS - 5
    assert bench.step().total_tokens == 15 * BLOCK + 2
    assert request.cached_tokens == {"disk": 5 * BLOCK}


def test_a_queue_on_the_link_counts() -> None:
    bench = Bench(2.0)
    bench.ask()
    bench.step()
    assert bench.scheduler.prefixes.ways["both"] == 1
    other = Request("other", [9] * 8 + [1], SamplingParams(max_tokens=1), arrival=99, max_tokens=1)
    keys: list[bytes] = []
    extend_keys(keys, b"", PUBLIC_ONLY, [9] * 8, BLOCK, 2)
    bench.scheduler.note_store(StoreChanges(added=keys))
    bench.scheduler.add(other)
    bench.step()
    assert bench.scheduler.prefixes.ways["compute"] == 1, "behind thirteen blocks, two more come late"


def test_a_prompt_whose_logits_are_wanted_is_computed() -> None:
    bench = Bench(0.1)
    bench.ask(prompt_logprobs=0)
    assert bench.step().total_tokens == len(DOCUMENT) + 2
    assert not bench.begun


def test_an_aborted_request_waits_for_nothing() -> None:
    bench = Bench(0.1)
    request = bench.ask()
    bench.step()
    bench.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)
    assert len(bench.step().cancelled) == NUM_BLOCKS
    assert not bench.scheduler.has_unfinished()
    assert bench.scheduler.kv.pool.num_used == 0
