"""A view shows every block in the state that the pool has it in."""

from __future__ import annotations

import pickle

from core.test_scheduler import Bench
from quire.async_engine import live_view
from quire.async_engine.live_view import CACHED, FIRST_REQUEST, FREE, PINNED, SHARED, look
from quire.core.request import RequestStatus


def test_each_block_has_its_state_and_its_request() -> None:
    bench = Bench()
    first, second = bench.add(range(10)), bench.add([5] * 9)
    bench.step(2)
    view = look(bench.scheduler)
    tables = [request.sequences[0].block_table for request in (first, second)]
    for number, table in enumerate(tables):
        assert {view.cells[block] for block in table} == {FIRST_REQUEST + number}
    assert view.cells.count(FREE) == view.num_blocks - sum(map(len, tables))
    assert [request.request_id for request in view.requests] == [first.request_id, second.request_id]
    assert [request.num_output_tokens for request in view.requests] == [2, 2]
    assert pickle.loads(pickle.dumps(view)) == view


def test_shared_pinned_and_cached_blocks_are_told_apart() -> None:
    bench = Bench()
    first = bench.add(range(12))
    bench.step(2)
    second = bench.add(range(12))
    bench.step()
    shared = set(first.sequences[0].block_table) & set(second.sequences[0].block_table)
    assert len(shared) == 2
    assert {look(bench.scheduler).cells[block] for block in shared} == {SHARED}
    bench.scheduler.pin_prefix(first.request_id)
    for request in (first, second):
        bench.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)
    view, pool = look(bench.scheduler), bench.scheduler.kv.pool
    assert view.cells.count(PINNED) == view.num_pinned == pool.num_used > 0
    assert view.cells.count(CACHED) == view.num_cached == pool.num_cached
    assert view.requests == ()


def test_a_large_pool_is_sampled_and_a_long_queue_is_cut() -> None:
    bench = Bench(num_blocks=10_000, max_num_seqs=4)
    for _ in range(live_view.MAX_REQUESTS + 3):
        bench.add(range(5))
    bench.step()
    view = look(bench.scheduler)
    assert (view.blocks_a_cell, len(view.cells)) == (5, 2000)
    assert (len(view.requests), view.num_unlisted) == (live_view.MAX_REQUESTS, 3)
