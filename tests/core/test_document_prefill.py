"""Documents of waiting requests are computed in steps that only decode, where that is cheaper than later."""

from __future__ import annotations

import pytest

from core.prefix_bench import BLOCK, DOCUMENT, NUM_BLOCKS, Bench
from quire.core.decisions.costs import StepShape
from quire.core.decisions.load_or_compute import AHEAD_SHARE
from quire.core.request import Owner, Request, RequestStatus
from quire.outputs import SchedulerOutput, StoreChanges

OTHER = [5000 + token for token in DOCUMENT]  #: a document that is not on disk
SPARE = 2 * BLOCK  #: tokens that a step computes for nothing


class SpareCosts:
    """A step takes a second, and one more per token beyond `SPARE` and its streams. Loads take nearly none."""

    is_link_usable = True

    def __init__(self, spare: int = SPARE) -> None:
        self.spare = spare

    def step(self, shape: StepShape) -> float:
        return 1.0 + max(0, shape.num_tokens - self.spare - 1)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return float(num_tokens)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return 1e-6

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return 1e-6


def queueing_bench(costs: SpareCosts | None = None, **limits: int) -> tuple[Bench, Request]:
    """A bench whose only seat is taken by a request without a document."""
    bench = Bench(0.1, max_num_seqs=1, **limits)
    bench.scheduler.decider.costs = costs or SpareCosts()
    running = bench.ask([], max_tokens=90)
    bench.step()
    return bench, running


def end(bench: Bench, request: Request) -> None:
    bench.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)


def chunk_of(out: SchedulerOutput) -> int:
    """Tokens beside the running stream's."""
    return out.total_tokens - 1


def test_a_waiting_request_finds_its_document_when_its_turn_comes() -> None:
    bench, running = queueing_bench()
    waiting = bench.ask(OTHER)
    chunks = [chunk_of(bench.step()) for _ in range(12)]
    assert chunks == [SPARE] * (len(OTHER) // SPARE) + [0] * 2, "what costs nothing, until nothing is missing"
    assert waiting.status is RequestStatus.WAITING
    assert bench.scheduler.kv.pool.num_used <= 4 + 1, "the document is cached, and not held"
    end(bench, running)
    assert bench.step().total_tokens == 2, "the question is all that is left"
    assert waiting.cached_tokens == {}, "computed for it: no hit"


def test_its_blocks_are_saved_to_disk_at_once() -> None:
    bench, _ = queueing_bench()
    waiting = bench.ask(OTHER)
    bench.step()
    assert waiting.num_kept == SPARE // BLOCK
    bench.step()
    assert sum(bench.scheduler.swap.can_load(key) for key in waiting.unfinished[0].block_keys) >= SPARE // BLOCK


def test_documents_on_disk_are_loaded_and_not_computed() -> None:
    bench, _ = queueing_bench()
    bench.ask(DOCUMENT)
    assert [chunk_of(bench.step(arrived=NUM_BLOCKS)) for _ in range(4)] == [0] * 4


def test_a_step_without_tokens_to_spare_computes_none() -> None:
    bench, _ = queueing_bench(SpareCosts(spare=0))
    bench.ask(OTHER)
    assert [chunk_of(bench.step()) for _ in range(30)] == [0] * 30


def test_chunks_take_a_bounded_share_of_the_time_of_decoding() -> None:
    class SlowerSteps(SpareCosts):
        def step(self, shape: StepShape) -> float:
            return 1.0 + 0.1 * (shape.num_tokens - 1)  # a tenth of what the tokens cost later

    bench, _ = queueing_bench(SlowerSteps())
    for token in range(4):
        bench.ask([6000 + 100 * token + each for each in range(len(OTHER))])
    shapes = [bench.step() and bench.scheduler.step_shape for _ in range(60)]
    added_s = [bench.scheduler.decider.costs.step(shape) - 1.0 for shape in shapes]
    assert sum(added_s) == pytest.approx(AHEAD_SHARE * len(shapes), rel=0.1)
    assert max(added_s) <= 1.0


def test_only_blocks_that_no_earlier_request_needs_are_used() -> None:
    bench, _ = queueing_bench(num_blocks=NUM_BLOCKS + 5)
    first, second = bench.ask(OTHER), bench.ask([9000 + each for each in OTHER])
    for _ in range(11):
        bench.step()
    keys = {each: bench.scheduler.kv.keys_of(each.unfinished[0], NUM_BLOCKS) for each in (first, second)}
    found = {each: [bench.scheduler.kv.pool.find(key) is not None for key in keys[each]] for each in keys}
    assert all(found[first])
    assert not any(found[second])
    assert bench.scheduler.counts.preemptions == 0


def test_an_abort_in_flight_and_a_failed_step_leave_nothing_behind() -> None:
    bench, running = queueing_bench()
    waiting = bench.ask(OTHER)
    scheduler = bench.scheduler
    out = scheduler.schedule()
    assert chunk_of(out) == SPARE
    end(bench, waiting)
    scheduler.check_integrity()
    survivor = bench.ask([9000 + each for each in OTHER])
    assert scheduler.fail_step("injected") == [running]
    scheduler.check_integrity()
    assert survivor.status is RequestStatus.WAITING
    assert not any(scheduler.kv.pool.find(key) for key in waiting.sequences[0].block_keys)


def test_a_step_that_fails_while_a_document_is_computed_does_not_fail_its_request() -> None:
    bench, running = queueing_bench()
    waiting = bench.ask(OTHER)
    assert chunk_of(bench.scheduler.schedule()) == SPARE
    assert bench.scheduler.fail_step("injected") == [running]
    assert waiting.error is None
    ((key, _),) = bench.step().claims  # it is the next to run
    bench.scheduler.apply_store_changes(StoreChanges(granted=[key]))
    assert bench.step().total_tokens == len(waiting.prompt_token_ids), "nothing is left of the failed step"


def test_tenants_take_turns_and_pay() -> None:
    bench, _ = queueing_bench(SpareCosts(SPARE + 1), num_blocks=8 * NUM_BLOCKS)
    bench.ask([], max_tokens=90, owner=Owner("flood"))  # on the spare seat
    bench.step()
    flood = [bench.ask([7000 + 100 * at + each for each in OTHER], owner=Owner("flood")) for at in range(3)]
    other = bench.ask(OTHER, owner=Owner("other"))
    served = bench.scheduler.queue.turns.served
    before = {tenant: served[tenant] for tenant in ("flood", "other")}
    for _ in range(8):
        bench.step()
    paid = {tenant: served[tenant] - before[tenant] for tenant in before}
    assert sum(paid.values()) == 8 + 8 * SPARE, "the stream's own tokens, and the chunks"
    assert abs(paid["flood"] - paid["other"]) <= SPARE
    assert [request.num_kept > 0 for request in (*flood, other)] == [True, False, False, True], "heads only"


def test_it_can_be_switched_off() -> None:
    bench, _ = queueing_bench(enable_lookahead=False)
    bench.ask(OTHER)
    assert chunk_of(bench.step()) == 0
