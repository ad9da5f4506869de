"""Compute documents of waiting requests in steps that only decode.

Such steps wait for weights rather than for arithmetic, so a chunk beside them often costs less than its tokens would
cost when their request runs. `LoadOrCompute.choose_ahead` picks the chunk that saves most, if any. Its blocks are
cached under the document's keys, where the request finds them when it is admitted.

A chunk is a sequence of one step, of a request that goes on waiting. It takes no seat and no claim, holds no block
between steps, and uses only blocks that neither running nor earlier waiting requests need. The request's tenant pays.

Source: computing documents' KV during the queue wait is from RAG-DCache (Lee et al., IEEE CLOUD '25).
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from quire.config import SchedulerConfig
from quire.core.admission import Admission
from quire.core.decisions.costs import StepShape
from quire.core.decisions.load_or_compute import AHEAD_SHARE, LoadOrCompute
from quire.core.decisions.step_budget import StepBudget
from quire.core.disk_tier import DiskTier
from quire.core.request import Request, RequestStatus, Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.counts import SchedulerCounts
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.swap_manager import SwapManager

_MAX_REQUESTS = 16  #: checked from the head of the queue
_MAX_LOOKUPS = 4  #: documents looked up per step, some 50 µs each


class DocumentPrefill:
    """Adds chunks to steps; `is_enabled` may be changed between steps."""

    def __init__(
        self,
        config: SchedulerConfig,
        queue: RequestQueue,
        swap: SwapManager,
        step: StepBuilder,
        budget: StepBudget,
        decider: LoadOrCompute,
        admission: Admission,
        disk: DiskTier | None,
        counts: SchedulerCounts,
    ) -> None:
        self.is_enabled = config.enable_lookahead and config.enable_prefix_caching
        self._queue = queue
        self._swap, self._kv = swap, swap.kv
        self._step, self._budget, self._decider = step, budget, decider
        self._admission, self._disk, self._counts = admission, disk, counts
        self._seq: Sequence | None = None  #: of the step in flight
        self._credit_s = 0.0  #: seconds that chunks may take: `AHEAD_SHARE` of past steps, at most one step's
        self._complete: set[str] = set()  #: ids of waiting requests whose documents have been computed
        self._num_computed = Counter[str]()  #: blocks computed for each waiting request

    @property
    def sequences(self) -> list[Sequence]:
        """The sequence of the step in flight, if any."""
        return [] if self._seq is None else [self._seq]

    def add_chunk(self) -> None:
        """Add a chunk of the first waiting request's document that pays to a scheduled step."""
        queue, costs, shape = self._queue, self._decider.costs, self._step.shape.total()
        is_decoding = shape.num_tokens > 0 and shape.attended == 0.0  # no prompt's chunk
        if not (queue.waiting and self.is_enabled and is_decoding) or costs is None:
            return
        step_s = costs.step(shape)
        self._credit_s = min(self._credit_s + AHEAD_SHARE * step_s, step_s)
        num_growing = sum(request.width for request in queue.running)  # a block each
        room = self._admission.room(self._step.num_reserved) - num_growing
        num_lookups, heads = 0, queue.heads()  # one of each tenant
        for request in heads if len(heads) > 1 else islice(queue.waiting, _MAX_REQUESTS):
            if room <= 0 or num_lookups == _MAX_LOOKUPS:
                return
            if self._may_compute(request):
                num_lookups += 1
                found = self._kv.find_prefix(request.unfinished[0])
                num_idle = self._kv.count_idle(found)
                if self._is_missing(request, len(found)):
                    self._compute(request, found, room - num_idle, shape)
                    return
            room -= self._admission.count_needed(request)

    def _may_compute(self, request: Request) -> bool:
        may_miss = request.documents and request.request_id not in self._complete
        if not may_miss or request.stage != self._step.stage or request.status is not RequestStatus.WAITING:
            return False
        if self._queue.holds_back(request):
            return False
        if not request.is_settled:
            request.is_settled = self._kv.share_public_prefix(request, self._swap.can_load)
        return not request.unfinished[0].must_compute

    def _end_of_documents(self, request: Request) -> int:
        """The full blocks of a request's documents without its last token, which is computed when it runs."""
        return min(request.documents[-1], len(request.unfinished[0].token_ids) - 1) // self._kv.block_size

    def _is_missing(self, request: Request, num_found: int) -> bool:
        """Whether the next block of a request's documents is in no tier."""
        end = self._end_of_documents(request)
        if num_found >= end:
            self._complete.add(request.request_id)
            return False
        key = self._kv.keys_of(request.unfinished[0], end)[num_found]
        return not self._swap.can_load(key) and not self._swap.is_loading(key)

    def _compute(self, request: Request, found: list[int], room: int, shape: StepShape) -> None:
        """Compute the next blocks after the `found` ones, at most `room`, if that pays."""
        kv, first, size = self._kv, request.unfinished[0], self._kv.block_size
        start, end = len(found) * size, self._end_of_documents(request) * size
        most = self._budget.count_spare(shape, start, min(end - start, room * size))
        num_new, seconds = self._decider.choose_ahead(shape, start, end, most, self._credit_s)
        if num_new == 0:
            return
        self._credit_s -= seconds
        seq = self._seq = self._queue.new_sequence(request, 0, first.token_ids)
        kv.set_keys(seq, first.block_keys)
        kv.adopt_prefix(seq, found)
        appended = kv.append_slots(seq, num_new)
        assert appended is not None
        self._step.add(seq, num_new, appended)
        self._queue.turns.charge(request.tenant, num_new)
        self._counts.ahead_tokens += num_new
        self._num_computed[request.request_id] += num_new // size

    def end_step(self, *, is_computed: bool) -> None:
        """Release the chunk's blocks after a step, and save computed ones to disk. Idempotent."""
        if (seq := self._seq) is None:
            return
        self._seq = None
        if is_computed and self._disk is not None:
            self._disk.keep_ahead(seq)
        self._kv.free(seq)
        self._step.remove(seq)
        self._queue.remove_sequence(seq)

    def pop_computed(self, request: Request) -> int:
        """Forget a request that begins or ends. Returns how many blocks were computed for it."""
        if self._seq is not None and self._seq.request is request:
            self.end_step(is_computed=False)
        self._complete.discard(request.request_id)
        return self._num_computed.pop(request.request_id, 0)
