"""Continuous batching: spend one token budget per step on requests, oldest first.

There is no prefill and no decode phase. Every sequence has tokens, and some of them have KV; a step moves
`num_computed_tokens` towards the number of tokens, and samples the next token where they meet. Chunked prefill, prefix
hits, resumption and beam search follow from that one rule.

    waiting   by (priority, rank, arrival), preempted ones among them  admitted in order, while there is room
    running   by (priority, arrival)                                   served oldest first, preempted youngest first

The order above is that of one tenant's requests; the tenants of one priority take turns (`scheduling/turns.py`). Other
tenants' requests that fit pass a head that waits for seats or blocks, at most `MAX_PASSES` that delay it. A tenant
below its share of the pool gets blocks of one above its share.

A sequence whose blocks load from another tier computes the tokens before them meanwhile; no other request waits for
it. A request that waits for anything but its turn, such as a document that another process computes, is blocked: it
stands outside the queue.

No tenant's requests preempt one of its own more than `MAX_PREEMPTIONS` times. After that, it is admitted only where the
pool holds all running requests at full length. While it runs, no other is admitted beyond that, unless it is the oldest
and the other is of another tenant. It is admitted in the end, since none passes the head of the queue, and alone it
always fits. A preemption drops at most the tokens that the request has. So each sequence of a request that ends with T
tokens computes at most `MAX_PREEMPTIONS * (T - 1)` tokens twice. (Sequences that outgrow the pool even alone run in
turns, which is no preemption.)

The parts are in `scheduling/`. Decides, never executes: tensors, text and clocks are elsewhere.
"""

from __future__ import annotations

from quire.config import SchedulerConfig, num_spare_seats
from quire.core.admission import Admission
from quire.core.beam_search import BeamSearch
from quire.core.decisions.costs import EMPTY_STEP, Costs, StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute
from quire.core.decisions.lookahead import Lookahead
from quire.core.decisions.prefix_loader import PrefixLoader
from quire.core.decisions.recovery import Recovery
from quire.core.decisions.recovery_log import RecoveryLog
from quire.core.decisions.recovery_policy import Cost, Recompute, RecoveryPolicy
from quire.core.decisions.step_budget import StepBudget
from quire.core.disk_tier import DiskTier
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import BlockedReason, Request, RequestStatus, Sequence, check_limits, check_outputs
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.counts import SchedulerCounts
from quire.core.scheduling.document_prefill import DocumentPrefill
from quire.core.scheduling.starter import SequenceStarter
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.scheduling.step_planner import StepPlanner
from quire.core.scheduling.step_results import SequenceUpdate, StepResults
from quire.core.speculation.speculator import Speculator
from quire.core.stages import Stages
from quire.core.swap_manager import SwapManager
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, NOT_NUMBERS, SchedulerOutput, StepOutput, StoreChanges

_MAX_RETRIES = 3  # of a request after steps without enough memory; from then on it runs alone


class Scheduler:
    """Continuous batching over a pool of KV blocks. Without `recovery`, preempted requests are recomputed; without
    `costs`, it loads whatever there is. `swap` replaces the default tiers."""

    def __init__(
        self,
        config: SchedulerConfig,
        recovery: RecoveryPolicy | None = None,
        costs: Costs | None = None,
        *,
        swap: SwapManager | None = None,
    ) -> None:
        if isinstance(recovery, Cost) and costs is None:
            raise ValueError("the recovery policy 'cost' needs costs to compare; give some, or choose another policy")
        self.config = config
        self.swap = swap or SwapManager(
            KVCacheManager(config.num_blocks, config.block_size, config.enable_prefix_caching, config.window),
            config.num_swap_slots,
        )
        self.kv = self.swap.kv
        self.queue = RequestQueue()
        self.counts = SchedulerCounts()
        self.stages = Stages()
        self.disk = DiskTier(self.kv, self.swap, costs, config.block_bytes) if config.has_disk_tier else None
        self.budget = StepBudget(config, costs)
        self.decider = LoadOrCompute(config, self.swap, costs, self.budget)
        self.recovery = Recovery(recovery or Recompute(), self.kv, self.swap, self.decider, RecoveryLog())
        self.prefixes = PrefixLoader(self.kv, self.swap, self.decider, self.recovery)
        admission = Admission(config, self.kv, self.swap, self.disk)
        self.lookahead = Lookahead(config, self.swap, self.decider, admission)
        self._step = StepBuilder(config.block_size)
        self.documents = DocumentPrefill(
            config, self.queue, self.swap, self._step, self.budget, self.decider, admission, self.disk, self.counts
        )
        starter = SequenceStarter(self.kv, admission, self.prefixes, self.lookahead, self.documents, self.counts)
        self.planner = StepPlanner(
            self.queue, self.swap, self.stages, self._step, self.budget, self.recovery, admission, starter, self.counts
        )
        self.speculator = Speculator(
            config.num_speculative_tokens, self.kv, self.queue, costs, draft_model=config.draft_model
        )
        self._results = StepResults(
            self.queue, self.swap, self._step, self.speculator, self.counts, self.finish_sequence
        )
        self.num_steps = 0
        self._in_flight: SchedulerOutput | None = None

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. Its result goes to `update`, or its failure to `fail_step`, before the next call."""
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        while self.update_next():
            pass
        self.num_steps += 1
        queue, step = self.queue, self._step
        self.kv.begin_step()
        last_shape = self.step_shape
        self.decider.begin_step(last_shape if queue.running else EMPTY_STEP)
        self.recovery.begin_step(queue.requests)
        self.prefixes.begin_step()
        step.begin(self.num_steps)
        for stage in self.stages.serving_order():
            self.planner.fill(stage)
            if step.num_seqs:
                self.stages.last_served = stage
                break
        self.speculator.add_drafts(step, self.budget.left)
        self.documents.add_chunk()
        self.lookahead.load_for_waiting(queue.waiting, queue.running, step.num_reserved, step.shape.total())
        out = self._in_flight = step.finish(self.swap.transfers.pop_new(), self.swap.transfers.pop_cancelled())
        out.returned = self.kv.pool.pop_returned()
        if self.disk is not None:
            self.disk.add_messages(out)
        return out

    def update(self, result: StepOutput, *, only_ended: bool = False) -> list[SequenceUpdate]:
        """Apply the result of the step in flight. Returns the sequences that got tokens (with `only_ended` those that
        ended). A request whose last sequence has ended has left the queue; the caller may end others by
        `finish_sequence`."""
        assert self._in_flight is not None, "no step is in flight"
        assert self._in_flight.step_id == result.step_id, "this result is not of the step in flight"
        self._in_flight = None
        if self.queue.trials:
            drawn = [self.request_of(seq_id) for seq_id in result.seq_ids if seq_id in self.queue.sequences]
            self.queue.end_trials(*(each for each in drawn if each.num_retries < _MAX_RETRIES))
        ended_saves = self.swap.end_transfers(result.transfers)
        self.recovery.end_step(result.transfers, self.queue.requests)
        for seq_id, why in result.failed.items():
            self._fail_sequence(seq_id, why)
        if self.disk is not None:
            self.disk.end_saves(ended_saves)
            self.disk.keep_computed()
        self.documents.end_step(is_computed=True)
        return self._results.apply(result, only_ended=only_ended)

    def update_next(self, *, only_ended: bool = False) -> list[SequenceUpdate]:
        """Apply the next of the step's confirmed draft tokens, one for each sequence that has not ended, until it
        returns []. The caller may end sequences in between."""
        return self._results.apply_next(only_ended=only_ended)

    def fail_step(self, error: str) -> list[Request]:
        """Invalidate the blocks of the step in flight and fail its requests, which are returned. A request that adopted
        one of these blocks, and only waits for loads, is computed again."""
        touched, unwritten = self._end_failed_step()
        return self._fail_requests(touched, error, unwritten)

    def retry_step(self, error: str) -> list[Request]:
        """As `fail_step` for a step without enough memory: its requests are computed again, one after the other and
        alone until they get a token, or after some retries until they end. One that was alone before fails."""
        touched, unwritten = self._end_failed_step()
        failed = [request for request in touched if request.num_retries and len(touched) == 1]
        for request in list(self.queue.running):
            request.num_yields += 1  # there are blocks enough
            self.planner.put_back(request)
        for request in touched:
            request.num_retries += 1
        self.queue.trials += [each for each in touched if each not in (*failed, *self.queue.trials)]
        return self._fail_requests(failed, error, unwritten)

    def _end_failed_step(self) -> tuple[list[Request], set[int]]:
        """Return the requests of the step in flight, and the blocks that it did not fill."""
        out, self._in_flight = self._in_flight, None
        assert out is not None, "no step is in flight"
        unwritten = self.kv.fail_step()
        self.documents.end_step(is_computed=False)
        self.speculator.fail_step()
        self._step.restore(out)
        sequences = self.queue.sequences
        touched = {sequences[seq_id].request for seq_id in out.seq_ids if seq_id in sequences}
        touched.update(seq.request for seq in sequences.values() if seq.is_unsampled)
        return sorted(touched, key=lambda request: request.order), unwritten

    def _fail_requests(self, requests: list[Request], error: str, unwritten: set[int]) -> list[Request]:
        for request in requests:
            self.finish_request(request.request_id, RequestStatus.FINISHED_ERROR, error)
        for seq in list(self.queue.sequences.values()):
            if not unwritten.isdisjoint(seq.block_table):
                self.swap.release_blocks(seq)
                self._step.remove(seq)
        return requests

    def _fail_sequence(self, seq_id: int, why: str) -> None:
        seq = self.queue.sequences.get(seq_id)
        if seq is not None and seq.num_draft_tokens and why == NOT_NUMBERS:
            # Computed again: drafts may have spoiled its logits. Keys behind a token count 0, and 0 * NaN is NaN.
            self.speculator.stop(seq)
            self.kv.invalidate(seq)
            self.swap.release_blocks(seq)
            self._step.remove(seq)
        elif seq is not None and seq.finish_reason is None:
            if why != EVERY_TOKEN_IS_BANNED and not why.startswith(BROKEN_GRAMMAR):  # else the blocks are valid
                keys = self.kv.invalidate(seq)
                self.swap.invalidate(keys)
                if self.disk is not None:
                    self.disk.invalidate(keys)
            self.finish_request(seq.request.request_id, RequestStatus.FINISHED_ERROR, why)

    @property
    def num_reserved_blocks(self) -> int:
        """Blocks that the last step's sequences still need for their known tokens."""
        return self._step.num_reserved

    @property
    def step_shape(self) -> StepShape:
        return self._step.shape.total()

    def add(self, request: Request) -> None:
        """Add a request to the queue. Raises ValueError if it can never run here; the message names the limit."""
        config, queue = self.config, self.queue
        num_prompt_tokens = len(request.prompt_token_ids)
        if request.request_id in queue.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        check_limits(config, num_prompt_tokens, request.width, is_beam=request.beam is not None)
        request.max_tokens = min(request.max_tokens, config.max_model_len - num_prompt_tokens)
        if request.beam is not None:
            request.beams = BeamSearch(request.beam, request.eos_token_ids, request.max_tokens)
        check_outputs(request)
        request.sequences = [
            queue.new_sequence(request, index, list(request.prompt_token_ids))
            for index in range(max(1, len(request.outputs)))
        ]
        for seq, output in zip(request.sequences, request.outputs, strict=False):
            seq.token_ids += output.token_ids
            seq.cumulative_logprob = output.cumulative_logprob
            if output.finish_reason is not None:
                seq.finish_reason = RequestStatus(output.finish_reason)
        request.unfinished = [seq for seq in request.sequences if seq.finish_reason is None]
        if self.disk is not None:
            self.disk.add_request(request)
        self.stages.assign(request)
        queue.add(request, self._reason_to_block(request))

    def _reason_to_block(self, request: Request) -> BlockedReason | None:
        if request.needs_grammar:
            return BlockedReason.GRAMMAR
        return BlockedReason.STAGE if request.min_stage > self.stages.current else None

    def grammar_ready(self, request_id: str) -> None:
        """Unblock a request whose grammar has been compiled. Harmless where it has ended."""
        request = self.queue.blocked.get(request_id)
        if request is not None and request.blocked_on is BlockedReason.GRAMMAR:
            request.needs_grammar = False
            self._unblock(request)

    def _unblock(self, request: Request) -> None:
        """Move a request from `blocked` to `waiting`, unless another reason blocks it."""
        if (reason := self._reason_to_block(request)) is None:
            self.queue.wait(request)
        else:
            self.queue.block(request, reason)

    def apply_store_changes(self, changes: StoreChanges) -> None:
        if self.disk is not None:
            for request in self.disk.apply_changes(changes, self.queue.requests.values()):
                self._unblock(request)

    def finish_sequence(self, seq: Sequence, reason: RequestStatus, stop_reason: int | str | None = None) -> None:
        """End one sequence; with the last one its request ends too. Harmless where it has ended already."""
        if seq.finish_reason is not None:
            return
        if self.disk is not None and self._in_flight is None and reason is not RequestStatus.FINISHED_ERROR:
            self.disk.keep_answer(seq)
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        self.swap.release_blocks(seq)
        self._step.remove(seq)
        self.speculator.remove(seq)
        request = seq.request
        request.unfinished.remove(seq)
        if not request.unfinished:
            self.counts.ended_sequences += len(request.sequences)
            self._release(request)
            self.queue.remove(request, reason)

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        """End a request with all its sequences, wherever it stands. None where there is no such request."""
        request = self.queue.requests.get(request_id)
        if request is None:
            return None
        request.error = error
        for seq in list(request.unfinished):
            self.finish_sequence(seq, reason)
        return request

    def _release(self, request: Request) -> None:
        self.stages.leave(request)
        self.lookahead.remove(request)
        self.documents.pop_computed(request)
        self.recovery.log.close(request.request_id)
        if self.disk is not None:
            self.disk.remove_request(request)

    def promote(self, stage: int, root: bytes) -> None:
        """Have requests compute with a later stage of the model, whose KV has the namespace key `root`. Requests in
        flight finish on their stage or are recomputed (`LoadOrCompute.choose_pinned`); those pinned to an earlier one
        are recomputed."""
        assert self._in_flight is None, "a stage changes between two steps"
        self.restart_pinned()
        pinned = {request.request_id for request in self.decider.choose_pinned(self.queue.running)}
        self.stages.advance(stage, root)
        for request in list(self.queue.requests.values()):
            if request.request_id not in pinned:
                self._restart(request)

    def restart_pinned(self) -> None:
        if self.stages.older is not None:
            for request in list(self.queue.requests.values()):
                if request.stage != self.stages.current:
                    self._restart(request)

    def _restart(self, request: Request) -> None:
        """Begin a request again on the current stage, with the tokens that it has."""
        for seq in request.unfinished:
            self.swap.release_blocks(seq)
            self.swap.abandon(seq)
            self._step.remove(seq)
            seq.candidates = None
        self._release(request)
        self.stages.assign(request)
        request.num_kept = 0
        if request.is_renamed:
            self.kv.rename(request)
        else:
            self.kv.clear_keys(request)
            if self.disk is not None:
                self.disk.add_request(request)
        if request.status is RequestStatus.RUNNING:
            request.num_promotions += 1
            self.queue.wait(request)
        elif request.status is RequestStatus.BLOCKED and request.blocked_on is not BlockedReason.GRAMMAR:
            self._unblock(request)

    def request_of(self, seq_id: int) -> Request:
        return self.queue.sequences[seq_id].request

    def has_unfinished(self) -> bool:
        """Whether there is a step to run: requests, transfers to wait for, or news for the store."""
        return bool(self.queue.requests) or self._has_pending_work

    def has_work(self) -> bool:
        """Whether a step can do anything: unlike `has_unfinished`, requests blocked on a stage do not count."""
        queue = self.queue
        num_idle = sum(request.blocked_on is BlockedReason.STAGE for request in queue.blocked.values())
        return len(queue.requests) > num_idle or self._has_pending_work

    @property
    def _has_pending_work(self) -> bool:
        return bool(self.swap.transfers) or (self.disk is not None and self.disk.has_messages)

    def pin_prefix(self, request_id: str) -> int:
        """Keep the full blocks of a running request for good (`KVCacheManager.pin`). Returns their number."""
        return self.kv.pin(self.queue.requests[request_id].sequences[0], self.config.max_model_len)

    def check_integrity(self) -> None:
        queue = self.queue
        sequences = [seq for request in queue.requests.values() for seq in request.unfinished]
        self.swap.check_integrity(sequences + self.documents.sequences)
        queue.check_integrity()
        self.stages.check_integrity(queue.requests.values())
        assert queue.num_running_seqs - queue.num_spare_seqs <= self.config.max_num_seqs
        assert queue.num_spare_seqs <= num_spare_seats(self.config.max_num_seqs)
        for request in queue.running:
            kept = any(seq.swapped_keys for seq in request.unfinished if seq.block_table)
            assert not kept, "the swap tier keeps blocks of a request that goes on"
        if self.disk is not None:
            self.disk.check_integrity(lambda request: request.blocked_on is BlockedReason.DOCUMENT)
        if not queue.requests:
            assert self.kv.pool.num_used - len(self.kv.pinned) <= len(self.swap.transfers), "blocks leak"
