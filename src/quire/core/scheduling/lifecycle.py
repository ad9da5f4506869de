"""Requests from `add` to their end: where each of them stands, and what becomes of its blocks when it leaves its place.

    waiting   wait for their turn, by (priority, arrival)
    aside     wait for something else: a document that another process computes, a grammar, a stage of the model
    running   have a place, by (priority, arrival)

Who is admitted or preempted, and when, is the scheduler's to decide.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from quire.config import SchedulerConfig
from quire.core.beam_search import BeamSearch
from quire.core.decisions.recovery_log import RecoveryLog
from quire.core.disk_tier import DiskTier
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.lookahead import Lookahead
from quire.core.request import Request, RequestStatus, Sequence, check_limits, check_outputs
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.stages import Stages
from quire.core.swap_manager import SwapManager

_ORDER: Callable[[Request], tuple[int, int]] = lambda request: request.order  # noqa: E731


class Lifecycle:
    """The requests of one scheduler, and their sequences.

    Args:
        config: of the scheduler.
        kv: block tables and pool.
        swap: the tiers.
        disk: of these the one that keeps documents, if there is one.
        lookahead: what is loaded for those that wait.
        stages: of the model.
        step: tells the runner whom to forget.
        log: of recoveries.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        swap: SwapManager,
        disk: DiskTier | None,
        lookahead: Lookahead,
        stages: Stages,
        step: StepBuilder,
        log: RecoveryLog,
    ) -> None:
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.aside: dict[str, Request] = {}  #: by id
        self.running: list[Request] = []
        self.sequences: dict[int, Sequence] = {}  #: alive, by seq_id
        self.counts = Counts()
        self.num_preempted = 0  #: requests that wait and have run before
        self.num_waiting_tokens = 0  #: of the waiting requests, all that they know
        self.num_running_seqs = 0  #: places taken, a request's whole width from its admission on
        self._config = config
        self._kv = kv
        self._swap = swap
        self._disk = disk
        self._lookahead = lookahead
        self._stages = stages
        self._step = step
        self._log = log
        self._next_seq_id = 0

    # -- they come ---------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """`Scheduler.add`."""
        config = self._config
        num_prompt_tokens = len(request.prompt_token_ids)
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        check_limits(config, num_prompt_tokens, request.width, is_beam=request.beam is not None)
        request.max_tokens = min(request.max_tokens, config.max_model_len - num_prompt_tokens)
        if request.beam is not None:
            request.beams = BeamSearch(request.beam, request.eos_token_ids, request.max_tokens)
        check_outputs(request)
        request.sequences = [
            self.new_sequence(request, index, list(request.prompt_token_ids))
            for index in range(max(1, len(request.outputs)))
        ]
        for seq, output in zip(request.sequences, request.outputs, strict=False):
            seq.token_ids += output.token_ids
            seq.cumulative_logprob = output.cumulative_logprob
            if output.finish_reason is not None:
                seq.finish_reason = RequestStatus(output.finish_reason)
        request.unfinished = [seq for seq in request.sequences if seq.finish_reason is None]
        self.requests[request.request_id] = request
        if self._disk is not None:
            self._disk.enter(request)
        request.stage = self._stages.current
        if self._stages.root is not None:
            request.root = self._stages.root
        if request.needs_grammar:
            self.set_aside(request, "grammar")
        else:
            self._begin_to_wait(request)

    def note_grammar(self, request_id: str) -> None:
        """`Scheduler.note_grammar`."""
        request = self.aside.get(request_id)
        if request is not None and request.waits_for == "grammar":
            del self.aside[request_id]
            request.waits_for, request.needs_grammar = None, False
            self._begin_to_wait(request)

    def new_sequence(self, request: Request, index: int, token_ids: list[int]) -> Sequence:
        seq = Sequence(self._next_seq_id, index, request, token_ids)
        self._next_seq_id += 1
        self.sequences[seq.seq_id] = seq
        return seq

    # -- they wait, and run ------------------------------------------------------------------------------------------

    def _begin_to_wait(self, request: Request) -> None:
        """Queue a request, or have it wait for its stage of the model."""
        if request.min_stage > self._stages.current:
            self.set_aside(request, "stage")
        else:
            self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        request.num_queued_tokens = sum(len(seq.token_ids) for seq in request.unfinished)
        self.num_waiting_tokens += request.num_queued_tokens
        insort(self.waiting, request, key=_ORDER)

    def dequeue(self, request: Request) -> None:
        """Take a waiting request out of the queue, for another place."""
        self.num_waiting_tokens -= request.num_queued_tokens
        if self.waiting[0] is request:
            del self.waiting[0]
        else:
            self.waiting.remove(request)

    def set_aside(self, request: Request, waits_for: str) -> None:
        """Have a request that is in no queue wait for something else than its turn, until `bring_back`."""
        request.waits_for = waits_for
        self.aside[request.request_id] = request

    def bring_back(self, request: Request) -> None:
        """What a request waited for is there: it waits for its turn."""
        del self.aside[request.request_id]
        request.waits_for = None
        self._enqueue(request)

    def admit(self, request: Request) -> None:
        """Have a request that is in no queue run."""
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self.num_running_seqs += request.width
        insort(self.running, request, key=_ORDER)

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks and its place; it waits again."""
        for seq in request.unfinished:
            self.drop(seq)
        self._leave_place(request)
        request.num_preemptions += 1
        self.counts.preemptions += 1
        self._enqueue(request)

    def _leave_place(self, request: Request) -> None:
        self.running.remove(request)
        self.num_running_seqs -= request.width
        request.status = RequestStatus.PREEMPTED
        self.num_preempted += 1

    def drop(self, seq: Sequence) -> None:
        """Give up a sequence's blocks and have the runner forget it: on finish, preemption and error alike."""
        seq.num_lost_tokens = max(seq.num_lost_tokens, seq.num_computed_tokens)
        self._swap.stop_waiting(seq)
        self._kv.free(seq)
        if seq.finish_reason is not None:
            self._swap.abandon(seq)
        self._step.forget(seq)

    # -- the model's stages ------------------------------------------------------------------------------------------

    def promote(self, stage: int, root: bytes) -> None:
        """`Scheduler.promote`."""
        self.leave_older_stage()
        pinned = self._stages.choose_pinned(self.running)
        self._stages.begin(stage, root, keeps_older=bool(pinned))
        stay = {request.request_id for request in pinned}
        for request in list(self.requests.values()):
            if request.request_id not in stay:
                self._take_to_stage(request)

    def leave_older_stage(self) -> None:
        """Compute all again on the current stage that is pinned to an older one."""
        if self._stages.older is None:
            return
        self._stages.older = None
        for request in list(self.requests.values()):
            if request.stage != self._stages.current:
                self._take_to_stage(request)

    def has_older_stage(self) -> bool:
        """Whether requests are still pinned to an older stage; without any it is not alive any more."""
        stages = self._stages
        if stages.older is not None and all(request.stage != stages.older for request in self.requests.values()):
            stages.older = None
        return stages.older is not None

    def _take_to_stage(self, request: Request) -> None:
        """Have a request begin (again) on the current stage, with the tokens that it has."""
        stages = self._stages
        assert stages.root is not None
        if request.status is RequestStatus.RUNNING:
            self._leave_place(request)
            request.num_promotions += 1
        elif request.waits_for is None:
            self.dequeue(request)
        elif request.waits_for == "document" or (request.waits_for == "stage" and request.min_stage <= stages.current):
            del self.aside[request.request_id]
            request.waits_for = None
        for seq in request.unfinished:
            self.drop(seq)
            self._swap.abandon(seq)
            seq.candidates = None
            seq.block_keys.clear()
        self._lookahead.leave(request)
        self._log.leave(request.request_id)
        request.stage, request.root, request.num_kept = stages.current, stages.root, 0
        if self._disk is not None:
            self._disk.leave(request)
        if request.is_renamed:
            self._kv.rename(request)
        elif self._disk is not None:
            self._disk.enter(request)
        if request.waits_for is None:
            self._enqueue(request)

    # -- they go -----------------------------------------------------------------------------------------------------

    def finish_sequence(self, seq: Sequence, reason: RequestStatus, stop_reason: int | str | None = None) -> None:
        """`Scheduler.finish_sequence`."""
        if seq.finish_reason is not None:
            return
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        self.drop(seq)
        request = seq.request
        request.unfinished.remove(seq)
        if not request.unfinished:
            self._finish(request, reason)

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        """`Scheduler.finish_request`."""
        request = self.requests.get(request_id)
        if request is None:
            return None
        request.error = error
        for seq in list(request.unfinished):
            self.finish_sequence(seq, reason)
        return request

    def _finish(self, request: Request, reason: RequestStatus) -> None:
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            self.num_running_seqs -= request.width
        elif self.aside.pop(request.request_id, None) is None:
            self.dequeue(request)
        self.counts.ended_sequences += len(request.sequences)
        if self._disk is not None:
            self._disk.leave(request)
        self._lookahead.leave(request)
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = reason
        for seq in request.sequences:
            self.sequences.pop(seq.seq_id, None)
        self._log.leave(request.request_id)
        del self.requests[request.request_id]

    # -- checks ------------------------------------------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Raise AssertionError where queues are out of order, or counts have drifted."""
        for queue in (self.running, self.waiting):
            orders = [request.order for request in queue]
            assert orders == sorted(orders)
        for request in self.requests.values():
            indices = [seq.index for seq in request.unfinished]
            assert indices == sorted(set(indices)), "siblings are out of order"
        assert len(self.running) + len(self.waiting) + len(self.aside) == len(self.requests)
        assert all(request.waits_for is not None for request in self.aside.values())
        idle = [*self.waiting, *self.aside.values()]
        assert self.num_waiting_tokens == sum(request.num_queued_tokens for request in self.waiting)
        assert self.num_preempted == sum(request.status is RequestStatus.PREEMPTED for request in idle)
        assert all(not seq.block_table for request in idle for seq in request.unfinished)
        assert self.num_running_seqs == sum(request.width for request in self.running) <= self._config.max_num_seqs
        assert set(self.sequences) >= {seq.seq_id for request in self.requests.values() for seq in request.unfinished}
        if not self.requests:
            assert not self.sequences, "sequences outlive their requests"
        for request in self.running:
            kept = any(seq.swapped_keys for seq in request.unfinished if seq.block_table)
            assert not kept, "kept for one that goes on"


@dataclass(slots=True)
class Counts:
    """What happened since the engine started; `Stats` are differences of it."""

    preemptions: int = 0
    recomputed_tokens: int = 0  #: computed in vain the first time
    prefix_queries: int = 0
    prefix_hits: int = 0
    hits_by_tier: Counter[str] = field(default_factory=Counter)  #: of these, tokens by tier, "device" among them
    sampled_tokens: int = 0
    begun_requests: int = 0
    ended_sequences: int = 0  #: in whatever way
