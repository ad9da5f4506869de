"""Lookahead loads a waiting request's document in order while link and pool are idle, and delays no request."""

from __future__ import annotations

from core.prefix_bench import BLOCK, DOCUMENT, NUM_BLOCKS, Bench
from quire.core.request import Request, RequestStatus
from quire.outputs import SchedulerOutput

OTHER = [5000 + token for token in DOCUMENT]  #: another document


def bench_with_one_seat(load_s: float = 0.1, *, max_tokens: int = 20, **limits: int) -> tuple[Bench, Request]:
    """A bench whose only seat is taken by a request without a document."""
    bench = Bench(load_s, max_num_seqs=1, **limits)
    running = bench.ask([], max_tokens=max_tokens)
    bench.step()
    return bench, running


def loads(out: SchedulerOutput) -> list[bytes | None]:
    return [transfer.key for transfer in out.transfers if transfer.kind == "load"]


def end(bench: Bench, request: Request) -> None:
    bench.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)


def test_a_document_is_there_when_its_turn_comes() -> None:
    bench, running = bench_with_one_seat()
    waiting = bench.ask()
    out = bench.step(arrived=NUM_BLOCKS)
    assert loads(out) == bench.keys
    assert out.total_tokens == 1, "who runs goes on"
    assert not loads(bench.step())
    end(bench, running)
    assert bench.step().total_tokens == 2, "the question is all that is left"
    assert waiting.cached_tokens == {"disk": len(DOCUMENT)}
    assert bench.scheduler.prefixes.ways == {"ahead": 1}


def test_what_is_on_its_way_when_the_turn_comes_is_waited_for() -> None:
    bench, running = bench_with_one_seat()
    waiting = bench.ask()
    bench.step(arrived=5)
    end(bench, running)
    out = bench.step(arrived=NUM_BLOCKS - 5)
    assert (loads(out), out.cancelled, out.seq_ids) == ([], [], [])
    assert bench.step().total_tokens == 2
    assert waiting.cached_tokens == {"disk": len(DOCUMENT)}


def test_the_link_gets_what_it_brings_in_two_steps_and_the_head_of_the_queue_comes_first() -> None:
    bench, _ = bench_with_one_seat(0.75)
    others = bench.put_on_disk(OTHER)
    bench.ask()
    bench.ask(OTHER)
    begun = [loads(bench.step(arrived=2)) for _ in range(15)]  # a step takes a second, two blocks one and a half
    assert [len(keys) for keys in begun] == [2] * 15
    assert [key for keys in begun for key in keys] == [*bench.keys, *others[:10]]


def test_a_load_that_somebody_waits_for_goes_first() -> None:
    bench, running = bench_with_one_seat()
    others = bench.put_on_disk(OTHER)
    bench.ask()
    bench.step()
    ahead = bench.begun
    end(bench, running)
    urgent = bench.ask(OTHER, priority=-1)
    out = bench.step(arrived=3)
    assert loads(out)[:NUM_BLOCKS] == others
    assert out.cancelled == ahead
    assert urgent.status is RequestStatus.RUNNING


def test_loads_for_who_has_left_are_cancelled() -> None:
    bench, running = bench_with_one_seat()
    waiting = bench.ask()
    bench.step(arrived=3)
    end(bench, waiting)
    assert len(bench.step().cancelled) == NUM_BLOCKS - 3
    end(bench, running)
    assert not bench.scheduler.has_unfinished()
    assert bench.scheduler.kv.pool.num_used == 0


def test_only_room_that_nobody_needs_is_taken() -> None:
    # The running request has a block of the 25 and may soon need one more; the first in the queue will need 21.
    bench, _ = bench_with_one_seat(0.05, num_blocks=25)
    others = bench.put_on_disk(OTHER)
    bench.ask()
    bench.ask(OTHER)
    assert loads(bench.step(arrived=99)) == [*bench.keys, *others[:2]]
    for _ in range(6):
        bench.step(arrived=99)
    assert bench.scheduler.counts.preemptions == 0


def test_what_a_waiting_request_will_find_is_evicted_last() -> None:
    bench, running = bench_with_one_seat(num_blocks=48)
    bench.ask()
    bench.step(arrived=NUM_BLOCKS)
    end(bench, running)
    for token in (0, 1):  # each needs half of the pool, and both in turn all of it
        flood = bench.ask([9000 + token] * (NUM_BLOCKS * BLOCK), max_tokens=9, priority=-1)
        bench.step()
        end(bench, flood)
    assert [bench.scheduler.kv.pool.find(key) is not None for key in bench.keys] == [True] * NUM_BLOCKS


def test_it_can_be_switched_off() -> None:
    bench, _ = bench_with_one_seat(enable_lookahead=False)
    bench.ask()
    assert not loads(bench.step())
