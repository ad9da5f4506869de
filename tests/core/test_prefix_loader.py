"""A prefix on disk is loaded, computed, or both, whichever gives the earliest first token."""

from __future__ import annotations

import pytest

from core.prefix_bench import BLOCK, DOCUMENT, NUM_BLOCKS, Bench
from quire.core.forecaster import Forecaster
from quire.core.request import RequestStatus
from quire.outputs import StoreChanges


@pytest.mark.parametrize(
    ("load_s", "way", "first_loaded"),
    [
        (0.1, "load", 0),
        (4.0, "both", 10),  # a block takes four seconds either way, so each way gets half
        (12.0, "both", 15),
        (200.0, "compute", None),  # loading one block takes longer than computing all
    ],
)
def test_the_way_that_brings_the_first_token_soonest(load_s: float, way: str, first_loaded: int | None) -> None:
    bench = Bench(load_s)
    bench.ask()
    out = bench.step()
    loads = [transfer for transfer in out.transfers if transfer.kind == "load"]
    assert bench.scheduler.prefixes.ways == {way: 1}
    (decision,) = bench.scheduler.prefixes.decisions
    assert (decision.way, decision.num_tokens) == (way, NUM_BLOCKS * BLOCK)
    assert decision.predicted == {"load": NUM_BLOCKS * load_s + 2, "compute": NUM_BLOCKS * BLOCK + 2}
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
    assert request.all_sources == [("computed", 10 * BLOCK), ("disk", 10 * BLOCK), ("computed", 2)]
    assert request.num_chosen_tokens == 10 * BLOCK
    assert Forecaster(bench.scheduler, bench.costs).predict_misses(request) == 10 * BLOCK + 2
    assert bench.scheduler.counts.prefix_hits == 10 * BLOCK


def test_a_block_that_is_lost_is_computed_and_not_asked_for_again() -> None:
    bench = Bench(0.1)
    request = bench.ask()
    bench.step(failed=1)
    assert bench.keys[0] not in bench.scheduler.swap.on_disk
    while not request.status.is_finished:
        bench.step(arrived=99)
    assert request.cached_tokens == {"disk": (NUM_BLOCKS - 1) * BLOCK}


def test_a_block_of_a_failed_step_is_computed_anew_by_a_request_that_adopted_it() -> None:
    bench = Bench(0.1)
    scheduler = bench.scheduler
    scheduler.apply_store_changes(StoreChanges(removed=[bench.keys[0]]))
    computing, adopting = bench.ask(), bench.ask()
    bench.step()
    scheduler.apply_store_changes(StoreChanges(granted=[bench.keys[-1]]))
    out = scheduler.schedule()
    assert out.num_scheduled_tokens == [BLOCK], "one computes the first block, and both load the others"
    assert adopting.sequences[0].num_computed_tokens == BLOCK
    assert scheduler.fail_step("injected") == [computing]
    assert adopting.sequences[0].num_computed_tokens == 0
    scheduler.check_integrity()
    while not adopting.status.is_finished:
        bench.step(arrived=99)
    assert adopting.error is None


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
    bench.costs.load_s = 50.0  # as it turns out
    out = bench.step()
    assert len(out.cancelled) == NUM_BLOCKS - 5
    assert bench.step().total_tokens == 15 * BLOCK + 2
    assert request.cached_tokens == {"disk": 5 * BLOCK}
    assert request.num_chosen_tokens == 15 * BLOCK, "the disk had them, and computing was faster"


def test_a_queue_on_the_link_counts() -> None:
    bench = Bench(2.0)
    bench.ask()
    bench.step()
    assert bench.scheduler.prefixes.ways["both"] == 1
    bench.put_on_disk([9] * 8)
    bench.ask([9] * 8)
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
