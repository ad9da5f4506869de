"""What the next step computes: one budget of tokens, spent on requests oldest first.

There is no prefill phase and no decode phase. Every sequence has tokens, and some of them have KV; a step moves
`num_computed_tokens` towards the number of tokens, and where it arrives there the step brings the next token. Chunked
prefill, prefix hits, resumption and beam search all follow from that one rule.

    waiting   by (priority, arrival), the preempted among them         admitted in order, while there is room
    running   by (priority, arrival)                                   served oldest first, preempted youngest first

A sequence whose blocks come from another tier, since it was swapped out or begins with a prefix that is there, computes
the tokens before its missing blocks, and waits for the blocks; nobody waits with it. A request that waits for anything
else than its turn, such as a document that another process computes, waits beside the queue (`aside`).

No request is preempted more than `MAX_PREEMPTIONS` times. After that it comes back to stay: it is admitted only where
the pool holds all running requests at full length, and nobody is admitted beyond that while it runs. So room is never
missing. It does come back, since nobody passes the head of the queue, and alone it always fits. A preemption drops at
most the tokens that its request has. So of a request that ends with T tokens, each sequence computes at most
`MAX_PREEMPTIONS * (T - 1)` in vain. (Sequences that outgrow the pool even alone run in turns, which is no preemption.)

Its parts are in `scheduling/`: requests from `add` to their end, what a step brought, and the step that is written.
Decides, never executes: tensors, text and clocks are elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from quire.config import SchedulerConfig
from quire.core.admission import Admission
from quire.core.decisions.costs import EMPTY_STEP, Costs, StepShape, StepShapeSum
from quire.core.decisions.recovery import RecoveryCoordinator
from quire.core.decisions.recovery_interface import RecoveryPolicy
from quire.core.decisions.recovery_policies import Recompute
from quire.core.decisions.step_budget import StepBudget
from quire.core.disk_tier import DiskTier
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.lookahead import Lookahead
from quire.core.prefix_loader import PrefixLoader
from quire.core.request import Loading, Request, RequestStatus, Sequence
from quire.core.scheduling.lifecycle import Lifecycle
from quire.core.scheduling.outcome import Outcome, SequenceUpdate
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.stages import Stages
from quire.core.swap_manager import SwapManager
from quire.outputs import BlockTransfer, SchedulerOutput, StepOutput, StoreChanges

_MAX_SAVING_BYTES = 256 * 2**20  #: on their way to disk: what is staged in memory at most


class Scheduler:
    """Continuous batching over a pool of KV blocks.

    Args:
        config: the pool's size and the limits.
        recovery: whom to preempt.
        costs: by which a prefix is loaded from another tier or computed; None loads whatever there is.
        promotion_policy: what becomes of requests in flight when another stage of the model is there: cost, pin or
            recompute.
        swap: with block tables of its own, in the place of the usual ones.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        recovery: RecoveryPolicy | None = None,
        costs: Costs | None = None,
        promotion_policy: str = "cost",
        *,
        swap: SwapManager | None = None,
    ) -> None:
        self.config = config
        self.swap = swap or SwapManager(
            KVCacheManager(config.num_blocks, config.block_size, config.enable_prefix_caching), config.num_swap_slots
        )
        self.kv = self.swap.kv
        self.budget = StepBudget(config, costs)
        self.recovery = RecoveryCoordinator(recovery or Recompute(), config, self.kv, self.swap, self.budget)
        self.prefixes = PrefixLoader(config, self.kv, self.swap, costs, self.budget)
        self.admission = Admission(config, self.kv, self.swap)
        self.lookahead = Lookahead(config, self.kv, self.swap, self.prefixes, self.admission)
        most = max(1, _MAX_SAVING_BYTES // max(1, config.block_bytes))
        self.disk = DiskTier(self.kv, self.swap, costs, most) if config.has_disk_tier else None
        self.stages = Stages(costs, promotion_policy, config.max_num_batched_tokens)
        self._step = StepBuilder(config.block_size)
        self._life = Lifecycle(
            config, self.kv, self.swap, self.disk, self.lookahead, self.stages, self._step, self.recovery.log
        )
        self._outcome = Outcome(self._life, self.kv, self.swap, self._step)
        self.requests = self._life.requests
        self.waiting = self._life.waiting
        self.aside = self._life.aside  #: by id, those that wait for something else than their turn
        self.running = self._life.running
        self.counts = self._life.counts
        self.num_steps = 0  #: decided so far
        self._in_flight: SchedulerOutput | None = None

    # -- a step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. Its result goes to `update`, or its failure to `fail_step`, before the next call."""
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        self.num_steps += 1
        self.kv.begin_step()
        last_shape = self.step_shape
        self.recovery.begin_step(last_shape, self.requests)
        self.prefixes.begin_step(last_shape if self.running else EMPTY_STEP)
        step, running, waiting = self._step, self.running, self.waiting
        self.has_older_stage()
        step.begin(self.num_steps)
        for stage in self.stages.turns():
            self._fill(stage)
            if step.num_seqs:
                self.stages.take_turn(stage)
                break
        self.lookahead.end_step(waiting, running, step.promised, step.shape.total())
        out = self._in_flight = step.finish(self.swap.take_transfers(), self.swap.take_cancelled())
        if self.disk is not None:
            self.disk.tell(out)
        return out

    def _fill(self, stage: int) -> None:
        """Spend the step's budget on the requests that compute with this stage of the model."""
        step, running, waiting, budget = self._step, self.running, self.waiting, self.budget
        step.stage, step.promised = stage, 0
        budget.begin()
        at = 0
        while at < len(running) and budget.left > 0:
            at += self._schedule_streams(at)
            if at == len(running) or budget.left <= 0:
                break
            request = running[at]
            if request.stage != stage:
                self._promise_missing(request)
            elif len(request.unfinished) == 1:
                self._schedule_single(request, request.unfinished[0])
            else:
                self._schedule_group(request)
            if request.status is RequestStatus.RUNNING:  # else it preempted itself, and the next one has its place
                at += 1
        while waiting and budget.left > 0 and waiting[0].stage == stage and self._fits(self._first_waiting()):
            if not self._has_budget_for_newcomer():
                break
            request = waiting[0]
            self._life.dequeue(request)
            if self.disk is not None and self.disk.must_wait(request):
                self._life.set_aside(request, "document")
                continue
            self._life.admit(request)
            self._schedule_group(request)

    def _schedule_streams(self, first: int) -> int:
        """Nearly every token of a long answer: all that is decided is that it is computed.

        What `_schedule_single` would do for each is done for all of them at once, from this place among the running on
        to the first of which more is to be decided, or for which there is no block.

        Returns:
            How many they are.
        """
        if self.stages.older is not None:  # some compute with another stage
            return 0
        running, kv, new_blocks = self.running, self.kv, self._step.new_blocks
        seq_ids: list[int] = []
        context = num_counted = 0
        for request in running[first : first + self.budget.num_alike]:
            seq = request.stream
            if seq is None:
                break
            start = seq.num_computed_tokens
            after = start + 1
            if len(seq.token_ids) != after:
                break
            if start < seq.stream_end:
                seq.num_computed_tokens = after
            elif (placed := kv.append_to_stream(seq)) is None:
                break
            else:
                num_counted += 1
                if placed:
                    new_blocks[seq.seq_id] = placed
            seq_ids.append(seq.seq_id)
            context += start
        if seq_ids:
            kv.num_kv_tokens += len(seq_ids) - num_counted
            self.budget.take_streams(len(seq_ids))
            self._step.add_streams(seq_ids, context)
        return len(seq_ids)

    def _promise_missing(self, request: Request) -> None:
        """Leave a request whose stage does not have its turn the blocks for the tokens that it knows."""
        for seq in request.unfinished:
            if seq.candidates is None:
                self._step.promise(max(0, self._missing_blocks(seq)))

    def _schedule_single(self, request: Request, seq: Sequence) -> None:
        """The common case: one sequence, whose blocks are in place."""
        if seq.candidates is not None:
            return
        if not seq.block_table or seq.loading is not None:
            self._schedule_group(request)
            return
        if (num_new := self._grant(seq)) == 0:
            self._step.promise(self._missing_blocks(seq))
            return
        while (placed := self.kv.append_slots(seq, num_new)) is None:
            if self._preempt_for(request):
                continue
            num_new = self._room_for(seq) if request is self.running[0] else 0
            if num_new == 0:
                return
        self._compute(seq, num_new, placed)

    def _schedule_group(self, request: Request) -> None:
        """A request with several sequences, or one that has to begin (again).

        Either all sequences that hold blocks go on, or the request is preempted whole; only the oldest request, which
        may not be preempted, runs its sequences in turns where they do not fit together.
        """
        kv, step = self.kv, self._step
        is_oldest = request is self.running[0]
        for seq in request.unfinished:
            if (loaded := self.swap.take_in_loaded(seq)) is not None:
                step.forget(seq)  # the runner knows the blocks before the loaded ones alone
                self._count_loaded(request, loaded)
                if not seq.must_compute:  # who waited for the same blocks may have computed what follows
                    num_more = kv.adopt_following(seq)
                    if not request.is_restarted:
                        self._count_cached(request, "device", num_more)
        if not self._make_room_for(request) and not is_oldest:
            return  # preempted itself
        has_progress = False
        for seq in list(request.unfinished):
            if self.budget.left == 0:
                break
            if seq.candidates is not None:
                continue
            if not seq.block_table and not self._begin(seq, is_forced=is_oldest and not has_progress):
                step.promise(kv.blocks_for(len(seq.token_ids)))
                continue
            if (num_new := self._grant(seq)) == 0:
                step.promise(self._missing_blocks(seq))
                continue
            if seq.loading is not None:
                num_new = min(num_new, seq.loading.start - seq.num_computed_tokens)
                if num_new == 0:  # the rest is on its way; its last tokens find room when they are computed
                    step.promise(self._missing_blocks(seq))
                    has_progress = True
                    continue
            while (placed := kv.append_slots(seq, num_new)) is None:
                if not self._park_sibling(seq):
                    break
            if placed is None and is_oldest and not has_progress and (room := self._room_for(seq)):
                num_new = room
                placed = kv.append_slots(seq, num_new)
            if placed is None:  # its turn comes when a sibling, or a load that nobody waits for any more, has ended
                self._life.drop(seq)
                step.promise(kv.blocks_for(len(seq.token_ids)))
                continue
            self._compute(seq, num_new, placed)
            has_progress = True

    def _grant(self, seq: Sequence) -> int:
        """How many of the tokens that a sequence misses the step has room for."""
        num_missing = len(seq.token_ids) - seq.num_computed_tokens
        if num_missing > 1:
            self._meet_streams()
        return self.budget.grant(seq.num_computed_tokens, num_missing)

    def _has_budget_for_newcomer(self) -> bool:
        self._meet_streams()
        return self.budget.grant(0, 2) > 0

    def _meet_streams(self) -> None:
        if not self.budget.knows_streams:
            self.budget.meet_streams(self._step.shape.total(), self._streams_to_come())

    def _streams_to_come(self) -> StepShape:
        """Of those that run on the step's stage, the sequences that miss one token and that it has not served yet."""
        shape = StepShapeSum()
        for request in self.running:
            if request.stage == self._step.stage:
                for seq in request.unfinished:
                    if len(seq.token_ids) - seq.num_computed_tokens == 1 and seq.candidates is None and seq.block_table:
                        shape.add(seq.num_computed_tokens, 1)
        return shape.total()

    def _compute(self, seq: Sequence, num_new: int, placed: tuple[list[int], BlockTransfer | None]) -> None:
        """Have the step compute a sequence's next tokens, for which there is room."""
        start = seq.num_computed_tokens - num_new
        if start < seq.num_lost_tokens:
            count = min(num_new, seq.num_lost_tokens - start)
            self.counts.recomputed_tokens += count
            self.recovery.log.note_recomputed(seq.request.request_id, start, count)
        self._step.add(seq, num_new, placed)
        self.budget.take(start, num_new, is_stream=start + 1 == len(seq.token_ids))
        if seq.num_computed_tokens < len(seq.token_ids):
            self._step.promise(self._missing_blocks(seq))
        elif seq.request.width == 1 and seq.request.beam is None:
            self.kv.begin_stream(seq)

    def _missing_blocks(self, seq: Sequence) -> int:
        """What a sequence needs for the rest of the tokens that it knows."""
        return self.kv.blocks_for(len(seq.token_ids)) - len(seq.block_table)

    def _make_room_for(self, request: Request) -> bool:
        """Preempt others until all of a request's sequences that hold blocks can go on. False where they cannot."""
        need = sum(
            self.kv.count_new_blocks(seq, seq.num_computed_tokens + self._grant(seq))
            for seq in request.unfinished
            if seq.block_table and seq.candidates is None and seq.loading is None
        )
        while self.kv.pool.num_available < need:
            if not self._preempt_for(request):
                return False
        return True

    def _room_for(self, seq: Sequence) -> int:
        """How many tokens of the oldest can be computed where not all can, with nobody left who could make room.

        Loads that nobody waits for any more hold the rest, until they end.
        """
        computed = seq.num_computed_tokens
        spare = self.kv.pool.num_available - self.kv.count_new_blocks(seq, computed)
        return max(0, (self.kv.blocks_for(computed) + spare) * self.config.block_size - computed)

    def _begin(self, seq: Sequence, *, is_forced: bool) -> bool:
        """Give a sequence without blocks the prefix that is cached, if the rest fits beside the promised blocks."""
        request = seq.request
        found = self.kv.find_prefix(seq)
        pool = self.kv.pool
        evictable = sum(1 for block in found if pool.ref_counts[block] == 0)
        missing = self.kv.blocks_for(len(seq.token_ids)) - len(found) - self.admission.count_coming(seq, len(found))
        if pool.num_available - evictable < missing + self._step.promised and not is_forced:
            return False
        if request.cached_tokens is None:
            request.cached_tokens = {}
            self.counts.begun_requests += 1
            self.counts.prefix_queries += len(seq.token_ids)
            self._count_found(request, len(found))
        self.kv.adopt_prefix(seq, found)
        if is_forced:
            while pool.num_available < missing and (self._preempt_for(request) or self._park_sibling(seq)):
                pass
        if not self.recovery.resume(seq) and not seq.must_compute:
            self.prefixes.begin(seq)
        return True

    def _count_loaded(self, request: Request, loaded: Loading) -> None:
        """Tokens of a prefix have arrived; what a preempted request gets back is none."""
        if not loaded.is_recovery and not request.is_restarted:
            num_blocks = (loaded.end - loaded.start) // self.config.block_size
            for tier, count in Counter(loaded.tiers[:num_blocks]).items():
                self._count_cached(request, tier, count)

    def _count_found(self, request: Request, num_found: int) -> None:
        """A request begins with blocks that are on the device; some were loaded for it while it waited."""
        brought = self.lookahead.take_brought(request, num_found)
        if brought:
            self.prefixes.ways["ahead"] += 1
        self._count_cached(request, "device", num_found - brought.total())
        for tier, count in brought.items():
            self._count_cached(request, tier, count)

    def _count_cached(self, request: Request, tier: str, num_blocks: int) -> None:
        if num_blocks and request.cached_tokens is not None:
            num_tokens = num_blocks * self.config.block_size
            request.cached_tokens[tier] = request.cached_tokens.get(tier, 0) + num_tokens
            self.counts.prefix_hits += num_tokens
            self.counts.hits_by_tier[tier] += num_tokens

    @property
    def has_news(self) -> bool:
        """Whether the runner has to be told of something that happened since the last step."""
        return self._step.has_to_tell

    def count_steps(self, num_steps: int, num_seqs: int, context: int) -> None:
        """Take in steps that were made elsewhere, each of which brought every running sequence one token.

        Args:
            num_steps: at least one.
            num_seqs: of each step.
            context: the computed tokens that the last of them looked back on.
        """
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        self.num_steps += num_steps
        self.counts.sampled_tokens += num_steps * num_seqs
        self._step.pass_over(num_seqs, context)

    # -- requests come and go ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: it can never run here; the message says which limit it breaks.
        """
        self._life.add(request)

    def note_grammar(self, request_id: str) -> None:
        """A request's grammar has been compiled: it waits for nothing but its turn now. Harmless where it has ended."""
        self._life.note_grammar(request_id)

    def promote(self, stage: int, root: bytes) -> None:
        """Have requests compute with a later stage of the model from the next step on.

        Those in flight finish on their stage, or are computed again on the new one (`Stages.choose_pinned`). What is
        left on a stage before theirs is computed again.

        Args:
            stage: its number.
            root: the key of its KV's namespace.
        """
        assert self._in_flight is None, "a stage changes between two steps"
        self._life.promote(stage, root)

    def leave_older_stage(self) -> None:
        """Compute all again on the current stage that is pinned to an older one."""
        self._life.leave_older_stage()

    def has_older_stage(self) -> bool:
        """Whether requests are still pinned to an older stage; without any it is not alive any more."""
        return self._life.has_older_stage()

    def finish_sequence(self, seq: Sequence, reason: RequestStatus, stop_reason: int | str | None = None) -> None:
        """End one sequence; with the last one its request ends too. Harmless where it has ended already."""
        self._life.finish_sequence(seq, reason, stop_reason)

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        """End a request with all its sequences, wherever it is. None where there is no such request any more."""
        return self._life.finish_request(request_id, reason, error)

    def note_store(self, changes: StoreChanges) -> None:
        """Take in what has come and gone in the disk tier, before a step is made."""
        if self.disk is not None:
            for request in self.disk.note(changes, self.requests.values()):
                self._life.bring_back(request)

    def request_of(self, seq_id: int) -> Request:
        """The request that a live sequence belongs to."""
        return self._life.sequences[seq_id].request

    def has_unfinished(self) -> bool:
        """Whether there is a step to run: requests, blocks under way that are waited for, or claims to be dropped."""
        return bool(self.requests) or self._has_errands

    def has_work(self) -> bool:
        """As `has_unfinished`, but for requests that wait for a stage: for these no step does anything."""
        num_idle = sum(request.waits_for == "stage" for request in self.aside.values())
        return len(self.requests) > num_idle or self._has_errands

    @property
    def _has_errands(self) -> bool:
        return self.swap.num_under_way > 0 or (self.disk is not None and self.disk.has_to_tell)

    @property
    def num_running_seqs(self) -> int:
        """Places that are taken: a request's whole width counts from its admission on."""
        return self._life.num_running_seqs

    @property
    def num_preempted(self) -> int:
        """Requests that wait and have run before."""
        return self._life.num_preempted

    @property
    def num_waiting_tokens(self) -> int:
        """Of the waiting requests, all that they know."""
        return self._life.num_waiting_tokens

    @property
    def num_promised_blocks(self) -> int:
        """Blocks that the last step's sequences still need for tokens which they know."""
        return self._step.promised

    @property
    def step_shape(self) -> StepShape:
        """What the last step computes, as far as its cost depends on it."""
        return self._step.shape.total()

    def _first_waiting(self) -> Request:
        """The head of the queue. If it begins with blocks that everyone may share, let it share them."""
        request = self.waiting[0]
        if not request.is_settled:
            request.is_settled = True
            self.kv.begin_public(request, self.swap.can_load)
        return request

    # -- room --------------------------------------------------------------------------------------------------------

    def _fits(self, request: Request) -> bool:
        """Whether a waiting request can run beside the running ones."""
        if self._life.num_running_seqs + request.width > self.config.max_num_seqs:
            return False
        # Alone, it runs in turns if need be.
        return not self.running or self.admission.has_room(request, self.running, self._step.promised)

    def _preempt_for(self, request: Request) -> bool:
        """Preempt someone so that `request` can go on. False where there is nobody, or it was itself the one chosen."""
        # Those before it have their place in this step already, and the oldest is never preempted.
        choice = self.recovery.choose_victim(self.running[max(1, self.running.index(request)) :])
        if choice is None:
            return False
        victim = choice.victim
        self.recovery.give_up(choice, self.num_steps)
        self._life.preempt(victim)
        return victim is not request

    def _park_sibling(self, seq: Sequence) -> bool:
        """Take the blocks of a sibling that can wait: one that has its candidates, else the last one.

        Siblings are served in order, so neither has a place in this step yet.
        """
        siblings = [s for s in seq.request.unfinished if s.block_table]
        idle = [s for s in siblings if s.candidates is not None]
        later = [s for s in siblings if s.index > seq.index]
        if not idle and not later:
            return False
        self._life.drop((idle or later)[-1])
        return True

    # -- what a step brought -----------------------------------------------------------------------------------------

    def update(self, result: StepOutput, *, only_ended: bool = False) -> list[SequenceUpdate]:
        """Take in a step's tokens: append, stop, fork.

        Args:
            only_ended: the caller has no use for sequences that go on; some may be returned.

        Returns:
            The sequences that got tokens, with these. A request whose last sequence has ended is gone from
            `requests`; the caller may end further sequences by `finish_sequence` (for a stop string).
        """
        assert self._in_flight is not None, "no step is under way"
        assert self._in_flight.step_id == result.step_id, "this result is not of the step under way"
        self._in_flight = None
        ended = self.swap.end_transfers(result.transfers)
        self.recovery.end_step(result.transfers, self.requests)
        for seq_id, why in result.failed.items():
            self._fail_sequence(seq_id, why)
        if self.disk is not None:
            self.disk.end_saves(ended)
            self.disk.keep_computed()
        return self._outcome.take_in(result, only_ended=only_ended)

    def fail_step(self, error: str) -> list[Request]:
        """The step under way did not happen: nothing that it was to write is trusted, and its requests fail.

        Returns:
            The requests that failed, finished.
        """
        out, self._in_flight = self._in_flight, None
        assert out is not None, "no step is under way"
        self.kv.fail_step()
        self._step.take_back(out)
        sequences = self._life.sequences
        touched = {sequences[seq_id].request.request_id for seq_id in out.seq_ids if seq_id in sequences}
        failed = (
            self.finish_request(request_id, RequestStatus.FINISHED_ERROR, error) for request_id in sorted(touched)
        )
        return [request for request in failed if request is not None]

    def _fail_sequence(self, seq_id: int, why: str) -> None:
        seq = self._life.sequences.get(seq_id)
        if seq is not None and seq.finish_reason is None:
            keys = self.kv.distrust(seq)
            self.swap.drop(keys)
            if self.disk is not None:
                self.disk.distrust(keys)
            self.finish_request(seq.request.request_id, RequestStatus.FINISHED_ERROR, why)

    # -- checks ------------------------------------------------------------------------------------------------------

    def pin_prefix(self, request_id: str) -> int:
        """Keep the full blocks of a running request for good (`KVCacheManager.pin`). Returns how many."""
        return self.kv.pin(self.requests[request_id].sequences[0], self.config.max_model_len)

    def sequences(self) -> Iterable[Sequence]:
        return self._life.sequences.values()

    def check_integrity(self) -> None:
        """Raise AssertionError where blocks leak, queues are out of order, or counts have drifted."""
        self.swap.check_integrity([seq for request in self.requests.values() for seq in request.unfinished])
        self._life.check_integrity()
        if self.disk is not None:
            self.disk.check_integrity(lambda request: request.waits_for == "document")
        if not self.requests:
            assert self.kv.pool.num_used - self.kv.num_pinned <= self.swap.num_under_way, "blocks leak"
