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

Owns requests and sequences from `add` to their end. Decides, never executes: tensors, text and clocks are elsewhere.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quire.config import SchedulerConfig
from quire.core.admission import Admission
from quire.core.beam_search import BeamSearch
from quire.core.costs.interface import EMPTY_STEP, Costs, StepShape, StepShapeSum
from quire.core.costs.step_budget import StepBudget
from quire.core.disk_tier import DiskTier
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.lookahead import Lookahead
from quire.core.prefix_loader import PrefixLoader
from quire.core.recovery.coordinator import RecoveryCoordinator
from quire.core.recovery.interface import RecoveryPolicy
from quire.core.recovery.policies import Recompute
from quire.core.request import Loading, Request, RequestStatus, Sequence, check_limits, check_outputs
from quire.core.stages import Stages
from quire.core.step_builder import StepBuilder
from quire.core.swap_manager import SwapManager
from quire.outputs import BlockTransfer, SchedulerOutput, StepOutput, StoreChanges, TokenLogprobs

_MAX_SAVING_BYTES = 256 * 2**20  #: on their way to disk: what is staged in memory at most

_ORDER: Callable[[Request], tuple[int, int]] = lambda request: request.order  # noqa: E731


class Scheduler:
    """Continuous batching over a pool of KV blocks.

    Args:
        config: the pool's size and the limits.
        recovery: whom to preempt.
        costs: by which a prefix is loaded from another tier or computed; None loads whatever there is.
        promotion_policy: what becomes of requests in flight when another stage of the model is there: cost, pin or
            recompute.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        recovery: RecoveryPolicy | None = None,
        costs: Costs | None = None,
        promotion_policy: str = "cost",
    ) -> None:
        self.config = config
        self.kv = KVCacheManager(config.num_blocks, config.block_size, config.enable_prefix_caching)
        self.swap = SwapManager(self.kv, config.num_swap_slots)
        self.budget = StepBudget(config, costs)
        self.recovery = RecoveryCoordinator(recovery or Recompute(), config, self.kv, self.swap, self.budget)
        self.prefixes = PrefixLoader(config, self.kv, self.swap, costs, self.budget)
        self.admission = Admission(config, self.kv, self.swap)
        self.lookahead = Lookahead(config, self.kv, self.swap, self.prefixes, self.admission)
        most = max(1, _MAX_SAVING_BYTES // max(1, config.block_bytes))
        self.disk = DiskTier(self.kv, self.swap, costs, most) if config.has_disk_tier else None
        self.stages = Stages(costs, promotion_policy, config.max_num_batched_tokens)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.aside: dict[str, Request] = {}  #: by id, those that wait for something else than their turn
        self.running: list[Request] = []
        self.counts = Counts()
        self._sequences: dict[int, Sequence] = {}  #: alive, by seq_id
        self._step = StepBuilder(config.block_size)
        self.num_preempted = 0  #: waiting requests that have run before
        self.num_waiting_tokens = 0  #: of the waiting requests, all that they know
        self._num_running_seqs = 0  #: places taken, a request's whole width from its admission on
        self._next_seq_id = 0
        self.num_steps = 0  #: decided so far
        self._in_flight: SchedulerOutput | None = None

    # -- a step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. Its result goes to `update`, or its failure to `fail_step`, before the next call."""
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        self.num_steps += 1
        self.kv.begin_step()
        self.recovery.begin_step(self.step_shape, self.requests)
        self.prefixes.begin_step(self.step_shape if self.running else EMPTY_STEP)
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
        ref_counts, block_size, last_place = self.kv.pool.ref_counts, self.kv.block_size, self.kv.block_size - 1
        seq_ids, counts, appended = step.places()
        num_decoded = context = 0
        at = 0
        while at < len(running) and budget.left > 0:
            request = running[at]
            if request.stage != stage:
                self._promise_missing(request)
            else:
                seq = request.unfinished[0]
                start = seq.num_computed_tokens
                is_alone = len(request.unfinished) == 1
                # Nearly every token of a long answer: the next one in a block that is its own, and that it does not
                # fill. What the other way would do for it is counted for all of them at once.
                if (
                    is_alone
                    and len(seq.token_ids) == start + 1
                    and 0 < start % block_size < last_place
                    and seq.is_in_runner
                    and ref_counts[seq.block_table[-1]] == 1
                    and start >= seq.num_lost_tokens
                    and seq.loading is None
                    and seq.candidates is None
                    and (not appended or seq.seq_id not in appended)
                ):
                    seq.num_computed_tokens = start + 1
                    seq_ids.append(seq.seq_id)
                    counts.append(1)
                    budget.take(start, 1, is_stream=True)
                    num_decoded += 1
                    context += start
                    at += 1
                    continue
                self._count_decodes(num_decoded, context)
                num_decoded = context = 0
                if is_alone:
                    self._schedule_single(request, seq)
                else:
                    self._schedule_group(request)
            if request.status is RequestStatus.RUNNING:  # else it preempted itself, and the next one has its place
                at += 1
        self._count_decodes(num_decoded, context)
        while waiting and budget.left > 0 and waiting[0].stage == stage and self._fits(self._first_waiting()):
            if not self._has_budget_for_newcomer():
                break
            request = waiting[0]
            self._dequeue(request)
            if self.disk is not None and self.disk.must_wait(request):
                self._set_aside(request, "document")
                continue
            self._admit(request)
            self._schedule_group(request)

    def _count_decodes(self, count: int, context: int) -> None:
        """So many sequences were given their next token's place, which look back on so many tokens together."""
        self.kv.num_kv_tokens += count
        self._step.count_decodes(count, context)

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
                self._drop(seq)
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

    # -- the same step again -----------------------------------------------------------------------------------------

    def may_repeat(self) -> bool:
        """Whether nobody comes, goes, waits for blocks or is admitted before one of the running requests ends.

        If the sequences are `repeatable` too, what follows is known without deciding it: `repeat` does at once what
        `schedule` and `update` would do, step by step.
        """
        running, waiting = self.running, self.waiting
        if not running or self.aside or self.disk is not None or self.stages.older is not None:
            return False
        if self.swap.num_under_way or self._step.has_to_tell or len(running) > self.config.max_num_batched_tokens:
            return False
        if not waiting:
            return True
        # All seats are taken, which is looked at before all else; and nothing is to be loaded meanwhile.
        is_full = self._num_running_seqs + waiting[0].width > self.config.max_num_seqs
        return is_full and waiting[0].is_settled and not self.swap.has_blocks

    def repeatable(self) -> list[Sequence] | None:
        """The running sequences, where each of them goes on by one token a step until it ends; None where one may not.

        That stays so for as long as they run together and get a token each.
        """
        seqs = []
        ref_counts, size = self.kv.pool.ref_counts, self.config.block_size
        for request in self.running:
            if len(request.unfinished) != 1:
                return None
            seq = request.unfinished[0]
            start = seq.num_computed_tokens
            if len(seq.token_ids) != start + 1 or not seq.is_in_runner or start < seq.num_lost_tokens:
                return None
            if (
                seq.loading is not None
                or seq.candidates is not None
                or not seq.block_table
                or seq.num_output_tokens < 1
            ):
                return None
            if start % size and ref_counts[seq.block_table[-1]] > 1:
                return None
            seqs.append(seq)
        return seqs

    def repeat(self, seqs: list[Sequence], num_steps: int, token_id: int) -> int:
        """Run so many steps at once, each of which brings every one of these sequences the same token.

        Args:
            seqs: what `repeatable` has said, while `may_repeat`.
            num_steps: none of them ends within.
            token_id: ends none of them.

        Returns:
            How many steps there were: fewer where the pool has no room for more.
        """
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        context = sum(seq.num_computed_tokens for seq in seqs)
        for seq in seqs:
            seq.token_ids.extend([token_id] * num_steps)
        num_done = self.kv.append_in_turns(seqs, num_steps)
        if num_done < num_steps:
            for seq in seqs:
                del seq.token_ids[num_done - num_steps :]
        if num_done:
            self.num_steps += num_done
            self.counts.sampled_tokens += num_done * len(seqs)
            self._step.begin(self.num_steps)
            self._step.count_decodes(len(seqs), context + (num_done - 1) * len(seqs))
        return num_done

    # -- requests come and go ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: it can never run here; the message says which limit it breaks.
        """
        num_prompt_tokens = len(request.prompt_token_ids)
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        check_limits(self.config, num_prompt_tokens, request.width, is_beam=request.beam is not None)
        request.max_tokens = min(request.max_tokens, self.config.max_model_len - num_prompt_tokens)
        if request.beam is not None:
            request.beams = BeamSearch(request.beam, request.eos_token_ids, request.max_tokens)
        check_outputs(request)
        request.sequences = [
            self._new_sequence(request, index, list(request.prompt_token_ids))
            for index in range(max(1, len(request.outputs)))
        ]
        for seq, output in zip(request.sequences, request.outputs, strict=False):
            seq.token_ids += output.token_ids
            seq.cumulative_logprob = output.cumulative_logprob
            if output.finish_reason is not None:
                seq.finish_reason = RequestStatus(output.finish_reason)
        request.unfinished = [seq for seq in request.sequences if seq.finish_reason is None]
        self.requests[request.request_id] = request
        if self.disk is not None:
            self.disk.enter(request)
        request.stage = self.stages.current
        if self.stages.root is not None:
            request.root = self.stages.root
        if request.needs_grammar:
            self._set_aside(request, "grammar")
        else:
            self._begin_to_wait(request)

    def note_grammar(self, request_id: str) -> None:
        """A request's grammar has been compiled: it waits for nothing but its turn now. Harmless where it has ended."""
        request = self.aside.get(request_id)
        if request is not None and request.waits_for == "grammar":
            del self.aside[request_id]
            request.waits_for, request.needs_grammar = None, False
            self._begin_to_wait(request)

    def _begin_to_wait(self, request: Request) -> None:
        """Queue a request, or have it wait for its stage of the model."""
        if request.min_stage > self.stages.current:
            self._set_aside(request, "stage")
        else:
            self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        request.num_queued_tokens = sum(len(seq.token_ids) for seq in request.unfinished)
        self.num_waiting_tokens += request.num_queued_tokens
        insort(self.waiting, request, key=_ORDER)

    def _dequeue(self, request: Request) -> None:
        self.num_waiting_tokens -= request.num_queued_tokens
        if self.waiting[0] is request:
            del self.waiting[0]
        else:
            self.waiting.remove(request)

    def _set_aside(self, request: Request, waits_for: str) -> None:
        """Have a waiting request wait for something else than its turn, until `_bring_back`."""
        request.waits_for = waits_for
        self.aside[request.request_id] = request

    def _bring_back(self, request: Request) -> None:
        del self.aside[request.request_id]
        request.waits_for = None
        self._enqueue(request)

    def promote(self, stage: int, root: bytes) -> None:
        """Have requests compute with a later stage of the model from the next step on.

        Those in flight finish on their stage, or are computed again on the new one (`Stages.choose_pinned`). What is
        left on a stage before theirs is computed again.

        Args:
            stage: its number.
            root: the key of its KV's namespace.
        """
        assert self._in_flight is None, "a stage changes between two steps"
        self.leave_older_stage()
        pinned = self.stages.choose_pinned(self.running)
        self.stages.begin(stage, root, keeps_older=bool(pinned))
        stay = {request.request_id for request in pinned}
        for request in list(self.requests.values()):
            if request.request_id not in stay:
                self._take_to_stage(request)

    def leave_older_stage(self) -> None:
        """Compute all again on the current stage that is pinned to an older one."""
        if self.stages.older is None:
            return
        self.stages.older = None
        for request in list(self.requests.values()):
            if request.stage != self.stages.current:
                self._take_to_stage(request)

    def has_older_stage(self) -> bool:
        """Whether requests are still pinned to an older stage; without any it is not alive any more."""
        stages = self.stages
        if stages.older is not None and all(request.stage != stages.older for request in self.requests.values()):
            stages.older = None
        return stages.older is not None

    def _take_to_stage(self, request: Request) -> None:
        """Have a request begin (again) on the current stage, with the tokens that it has."""
        assert self.stages.root is not None
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            self._num_running_seqs -= request.width
            request.status = RequestStatus.PREEMPTED
            request.num_promotions += 1
            self.num_preempted += 1
        elif request.waits_for is None:
            self._dequeue(request)
        elif request.waits_for == "document" or (
            request.waits_for == "stage" and request.min_stage <= self.stages.current
        ):
            del self.aside[request.request_id]
            request.waits_for = None
        for seq in request.unfinished:
            self._drop(seq)
            self.swap.abandon(seq)
            seq.candidates = None
            seq.block_keys.clear()
        self.lookahead.leave(request)
        self.recovery.log.leave(request.request_id)
        request.stage, request.root, request.num_kept = self.stages.current, self.stages.root, 0
        if self.disk is not None:
            self.disk.leave(request)
        if request.is_renamed:
            self.kv.rename(request)
        elif self.disk is not None:
            self.disk.enter(request)
        if request.waits_for is None:
            self._enqueue(request)

    def note_store(self, changes: StoreChanges) -> None:
        """Take in what has come and gone in the disk tier, before a step is made."""
        if self.disk is not None:
            for request in self.disk.note(changes, self.requests.values()):
                self._bring_back(request)

    def request_of(self, seq_id: int) -> Request:
        """The request that a live sequence belongs to."""
        return self._sequences[seq_id].request

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
        return self._num_running_seqs

    @property
    def num_promised_blocks(self) -> int:
        """Blocks that the last step's sequences still need for tokens which they know."""
        return self._step.promised

    @property
    def step_shape(self) -> StepShape:
        """What the last step computes, as far as its cost depends on it."""
        return self._step.shape.total()

    def finish_sequence(self, seq: Sequence, reason: RequestStatus, stop_reason: int | str | None = None) -> None:
        """End one sequence; with the last one its request ends too. Harmless where it has ended already."""
        if seq.finish_reason is not None:
            return
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        self._drop(seq)
        request = seq.request
        request.unfinished.remove(seq)
        if not request.unfinished:
            self._finish(request, reason)

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        """End a request with all its sequences, wherever it is. None where there is no such request any more."""
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
            self._num_running_seqs -= request.width
        elif self.aside.pop(request.request_id, None) is None:
            self._dequeue(request)
        self.counts.ended_sequences += len(request.sequences)
        if self.disk is not None:
            self.disk.leave(request)
        self.lookahead.leave(request)
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = reason
        for seq in request.sequences:
            self._sequences.pop(seq.seq_id, None)
        self.recovery.log.leave(request.request_id)
        del self.requests[request.request_id]

    def _drop(self, seq: Sequence) -> None:
        """Give up a sequence's blocks and have the runner forget it: on finish, preemption and error alike."""
        seq.num_lost_tokens = max(seq.num_lost_tokens, seq.num_computed_tokens)
        self.swap.stop_waiting(seq)
        self.kv.free(seq)
        if seq.finish_reason is not None:
            self.swap.abandon(seq)
        self._step.forget(seq)

    def _new_sequence(self, request: Request, index: int, token_ids: list[int]) -> Sequence:
        seq = Sequence(self._next_seq_id, index, request, token_ids)
        self._next_seq_id += 1
        self._sequences[seq.seq_id] = seq
        return seq

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
        if self._num_running_seqs + request.width > self.config.max_num_seqs:
            return False
        # Alone, it runs in turns if need be.
        return not self.running or self.admission.has_room(request, self.running, self._step.promised)

    def _admit(self, request: Request) -> None:
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self._num_running_seqs += request.width
        insort(self.running, request, key=_ORDER)

    def _preempt_for(self, request: Request) -> bool:
        """Preempt someone so that `request` can go on. False where there is nobody, or it was itself the one chosen."""
        # Those before it have their place in this step already, and the oldest is never preempted.
        choice = self.recovery.choose_victim(self.running[max(1, self.running.index(request)) :])
        if choice is None:
            return False
        victim = choice.victim
        self.recovery.give_up(choice, self.num_steps)
        for seq in victim.unfinished:
            self._drop(seq)
        self.running.remove(victim)
        self._num_running_seqs -= victim.width
        victim.status = RequestStatus.PREEMPTED
        victim.num_preemptions += 1
        self.num_preempted += 1
        self.counts.preemptions += 1
        self._enqueue(victim)
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
        self._drop((idle or later)[-1])
        return True

    # -- what a step brought -----------------------------------------------------------------------------------------

    def update(self, result: StepOutput) -> list[SequenceUpdate]:
        """Take in a step's tokens: append, stop, fork.

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
        updates: list[SequenceUpdate] = []
        sequences = self._sequences
        logprobs = result.logprobs
        self.counts.sampled_tokens += len(result.seq_ids)
        for seq_id, sampled in zip(result.seq_ids, result.sampled, strict=True):
            seq = sequences.get(seq_id)
            if seq is None or seq.finish_reason is not None or not seq.is_in_runner:
                continue  # ended while the step was under way
            entries = logprobs.get(seq_id) if logprobs else None
            request = seq.request
            if request.beam is not None:
                assert entries is not None
                seq.candidates = list(zip(entries[0].top_ids, entries[0].top_logprobs, strict=True))
                if all(beam.candidates is not None for beam in request.unfinished):
                    self._advance_beams(request, updates)
            elif len(sampled) == 1:
                self._append(seq, sampled[0], entries, updates)
            else:
                self._fork(seq, sampled, entries, updates)
        return updates

    def fail_step(self, error: str) -> list[Request]:
        """The step under way did not happen: nothing that it was to write is trusted, and its requests fail.

        Returns:
            The requests that failed, finished.
        """
        out, self._in_flight = self._in_flight, None
        assert out is not None, "no step is under way"
        self.kv.fail_step()
        self._step.take_back(out)
        touched = {self._sequences[seq_id].request.request_id for seq_id in out.seq_ids if seq_id in self._sequences}
        failed = (
            self.finish_request(request_id, RequestStatus.FINISHED_ERROR, error) for request_id in sorted(touched)
        )
        return [request for request in failed if request is not None]

    def _append(
        self, seq: Sequence, token_id: int, entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        token_ids, request = seq.token_ids, seq.request
        token_ids.append(token_id)
        if entries is not None:
            seq.cumulative_logprob += entries[0].logprob
        updates.append(SequenceUpdate(seq, [token_id], entries))
        num_output_tokens = len(token_ids) - seq.num_prompt_tokens
        params = request.sampling_params
        may_end = num_output_tokens >= params.min_tokens or params.structured_outputs is not None
        if token_id in request.stop_token_ids and may_end:
            is_models_own = token_id in request.eos_token_ids
            self.finish_sequence(seq, RequestStatus.FINISHED_STOPPED, None if is_models_own else token_id)
        elif num_output_tokens >= request.max_tokens:
            self.finish_sequence(seq, RequestStatus.FINISHED_LENGTH)

    def _fork(
        self, seq: Sequence, tokens: list[int], entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        """The prompt is computed: n sequences go on from it, each with its own first token."""
        request = seq.request
        self.counts.sampled_tokens += len(tokens) - 1
        for index in range(1, len(tokens)):
            child = self._new_sequence(request, index, list(seq.token_ids))
            self.kv.fork(seq, child)
            request.sequences.append(child)
            request.unfinished.append(child)
        for i, (sibling, token_id) in enumerate(zip(list(request.sequences), tokens, strict=True)):
            self._append(sibling, token_id, None if entries is None else [entries[i]], updates)

    def _advance_beams(self, request: Request, updates: list[SequenceUpdate]) -> None:
        search, beams = request.beams, request.unfinished
        assert search is not None
        going_on = search.advance(
            [(beam.output_token_ids, beam.cumulative_logprob, beam.candidates or []) for beam in beams]
        )
        if search.is_done:
            updates.append(SequenceUpdate(beams[0], []))
            stopped = any(h.stopped for h in search.finished)
            for beam in list(beams):
                self.finish_sequence(beam, RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH)
            return
        next_unfinished: list[Sequence] = []
        continued: set[int] = set()
        for candidate in going_on:  # forks first: they need the parents' tables as they are
            if candidate.beam in continued:
                parent = beams[candidate.beam]
                child = self._new_sequence(request, parent.index, list(parent.token_ids))
                self.kv.fork(parent, child)
            else:
                continued.add(candidate.beam)
                child = beams[candidate.beam]
            child.cumulative_logprob = candidate.sum_logprob
            next_unfinished.append(child)
        for at, beam in enumerate(beams):
            if at not in continued:
                self._drop(beam)
                self.swap.abandon(beam)
                del self._sequences[beam.seq_id]
        for index, (beam, candidate) in enumerate(zip(next_unfinished, going_on, strict=True)):
            self._step.tell_token(beam, candidate.token_id)
            beam.token_ids.append(candidate.token_id)
            beam.candidates = None
            beam.index = index
        request.sequences = next_unfinished
        request.unfinished = list(next_unfinished)

    def _fail_sequence(self, seq_id: int, why: str) -> None:
        seq = self._sequences.get(seq_id)
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
        return self._sequences.values()

    def check_integrity(self) -> None:
        """Raise AssertionError where blocks leak, queues are out of order, or counts have drifted."""
        self.swap.check_integrity([seq for request in self.requests.values() for seq in request.unfinished])
        for queue in (self.running, self.waiting):
            orders = [request.order for request in queue]
            assert orders == sorted(orders)
        for request in self.requests.values():
            indices = [seq.index for seq in request.unfinished]
            assert indices == sorted(set(indices)), "siblings are out of order"
        assert len(self.running) + len(self.waiting) + len(self.aside) == len(self.requests)
        if self.disk is not None:
            self.disk.check_integrity(lambda request: request.waits_for == "document")
        assert all(request.waits_for is not None for request in self.aside.values())
        idle = [*self.waiting, *self.aside.values()]
        assert self.num_waiting_tokens == sum(request.num_queued_tokens for request in self.waiting)
        assert self.num_preempted == sum(request.status is RequestStatus.PREEMPTED for request in idle)
        assert all(not seq.block_table for request in idle for seq in request.unfinished)
        assert self._num_running_seqs == sum(request.width for request in self.running) <= self.config.max_num_seqs
        assert set(self._sequences) >= {seq.seq_id for request in self.requests.values() for seq in request.unfinished}
        if not self.requests:
            assert not self._sequences, "sequences outlive their requests"
            assert self.kv.pool.num_used - self.kv.num_pinned <= self.swap.num_under_way, "blocks leak"
        for request in self.running:
            assert not any(seq.swapped_keys for seq in request.unfinished if seq.block_table), (
                "kept for one that goes on"
            )


@dataclass(slots=True)
class SequenceUpdate:
    """New tokens of one sequence, for whoever turns them into text and answers; none where a beam search has ended."""

    sequence: Sequence
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


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
