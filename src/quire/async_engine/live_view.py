"""A view of an engine between two steps, for people who watch it: blocks, requests, tiers and recoveries.

Each byte of `LiveView.cells` is the state of one block:

    FREE     not held, without a key
    CACHED   not held, found by its key
    SHARED   held by several sequences
    PINNED   held for good
    LOADING  on its way from another tier
    HELD     held by a request that is not listed
    FIRST_REQUEST + i    held by `requests[i]` alone
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import chain, islice

from quire.core.block_pool import WindowedBlockPool
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import TIERS
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.request import Request
from quire.core.scheduler import Scheduler

FREE, CACHED, SHARED, PINNED, LOADING, HELD = range(6)
FIRST_REQUEST = 16
MAX_CELLS = 2048
MAX_REQUESTS = 64
_NUM_RECOVERIES = 6
_SPAN_TOKENS = 1024  #: whose load and computation are compared
_FROM_COUNT = bytes([FREE]) + bytes([HELD]) * 255


@dataclass(frozen=True, slots=True)
class RequestView:
    request_id: str
    tenant: str
    state: str  #: running, waiting, preempted, or the event that it waits for
    stage: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_computed_tokens: int  #: of the first sequence
    num_output_tokens: int  #: of all sequences
    max_tokens: int
    num_blocks: int
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class TierView:
    name: str
    num_blocks: int
    capacity: int | None  #: blocks; None: unknown
    num_queued: int  #: records that wait for the link or move
    load_s: float | None  #: predicted seconds to load `LiveView.span_tokens`; None until measured
    save_s: float | None


@dataclass(frozen=True, slots=True)
class RecoveryView:
    outcome: str
    num_tokens: int
    predicted: dict[str, float]  #: seconds by mode
    seconds: float
    is_complete: bool


@dataclass(frozen=True, slots=True)
class DecisionView:
    """How a prefix in other tiers was read."""

    num_tokens: int
    way: str
    predicted: dict[str, float]  #: seconds to the first token, by way
    seconds: float | None


@dataclass(frozen=True, slots=True)
class LiveView:
    cells: bytes
    blocks_a_cell: int  #: more than 1: `cells` is a sample of every so many blocks
    num_blocks: int
    num_used: int
    num_cached: int
    num_pinned: int
    block_size: int
    block_bytes: int
    requests: tuple[RequestView, ...]  #: running ones first
    num_unlisted: int
    tiers: tuple[TierView, ...]
    span_tokens: int
    compute_s: float | None  #: predicted seconds to compute `span_tokens`; None until measured
    recoveries: tuple[RecoveryView, ...]  #: the latest first
    decisions: tuple[DecisionView, ...]  #: the latest first
    stage: int
    took_s: float  #: to make this view


def look(scheduler: Scheduler) -> LiveView:
    """Return a view. It takes O(blocks), below a millisecond for ten thousand."""
    started = time.perf_counter()
    config, kv, queue = scheduler.config, scheduler.kv, scheduler.queue
    costs = scheduler.decider.costs if isinstance(scheduler.decider.costs, CostModel) else None
    everything = chain(queue.running, queue.waiting, queue.blocked.values())
    requests = list(islice(everything, MAX_REQUESTS))
    cells = _cells(scheduler, requests)
    stride = -(-len(cells) // MAX_CELLS)
    has = {"host": scheduler.swap.tier.num_slots > 0, "disk": scheduler.disk is not None}
    recoveries = chain(scheduler.recovery.log.open_records(), reversed(scheduler.recovery.log.closed))
    return LiveView(
        cells=bytes(cells[::stride]),
        blocks_a_cell=stride,
        num_blocks=kv.pool.num_blocks,
        num_used=kv.pool.num_used,
        num_cached=kv.pool.num_cached,
        num_pinned=len(kv.pinned),
        block_size=config.block_size,
        block_bytes=config.block_bytes,
        requests=tuple(map(_request, requests)),
        num_unlisted=len(queue.requests) - len(requests),
        tiers=tuple(_tier(scheduler, name, costs) for name in TIERS if has[name]),
        span_tokens=_SPAN_TOKENS,
        compute_s=costs.recompute(_SPAN_TOKENS) if costs is not None and costs.steps.is_calibrated else None,
        recoveries=tuple(map(_recovery, islice(recoveries, _NUM_RECOVERIES))),
        decisions=tuple(
            DecisionView(each.num_tokens, each.way, each.predicted, each.seconds)
            for each in reversed(scheduler.prefixes.decisions)
        ),
        stage=scheduler.stages.current,
        took_s=time.perf_counter() - started,
    )


def _cells(scheduler: Scheduler, requests: list[Request]) -> bytearray:
    kv, size = scheduler.kv, scheduler.config.block_size
    pool = kv.pool
    if isinstance(pool, WindowedBlockPool):  # blocks share memory, so that only their numbers are known
        num_held, num_cached = pool.num_used, pool.num_cached
        num_free = pool.num_blocks - num_held - num_cached
        return bytearray([HELD] * num_held + [CACHED] * num_cached + [FREE] * num_free)
    cells = bytearray(min(count, 255) for count in pool.ref_counts).translate(_FROM_COUNT)
    for block in pool.cached:
        cells[block] = CACHED
    for index, request in enumerate(requests):
        for seq in request.unfinished:
            for block in seq.block_table:
                cells[block] = FIRST_REQUEST + index if pool.ref_counts[block] == 1 else SHARED
            if seq.loading is not None:
                for block in seq.block_table[seq.loading.start // size :]:
                    cells[block] = LOADING
    for block in kv.pinned:
        cells[block] = PINNED
    return cells


def _request(request: Request) -> RequestView:
    first = request.unfinished[0] if request.unfinished else None
    return RequestView(
        request.request_id,
        request.tenant,
        request.status.value if request.blocked_on is None else request.blocked_on.value,
        request.stage,
        len(request.prompt_token_ids),
        request.num_cached_tokens,
        first.num_computed_tokens if first is not None else 0,
        sum(seq.num_output_tokens for seq in request.sequences),
        request.max_tokens,
        sum(len(seq.block_table) for seq in request.unfinished),
        request.num_preemptions,
    )


def _tier(scheduler: Scheduler, name: str, costs: CostModel | None) -> TierView:
    config, swap = scheduler.config, scheduler.swap
    span_bytes = _SPAN_TOKENS // config.block_size * config.block_bytes
    capacity = swap.tier.num_slots if name == "host" else None
    return TierView(
        name,
        len(swap.on_disk) if capacity is None else swap.tier.num_stored,
        capacity,
        swap.transfers.num_queued(name),
        costs.load(span_bytes, name) if costs is not None and costs.links[name].loads.is_calibrated else None,
        costs.save(span_bytes, name) if costs is not None and costs.links[name].saves.is_calibrated else None,
    )


def _recovery(record: RecoveryRecord) -> RecoveryView:
    return RecoveryView(
        record.outcome, record.num_tokens, dict(record.predicted), record.seconds, is_complete=record.is_complete
    )
