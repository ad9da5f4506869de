"""Spend the token budget of one step on the requests of one stage, oldest first, then on new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from quire.core.admission import Admission
from quire.core.decisions.costs import StepShape, StepShapeSum
from quire.core.decisions.recovery import Recovery
from quire.core.decisions.step_budget import StepBudget
from quire.core.request import BlockedReason, Request, RequestStatus, Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.counts import SchedulerCounts
from quire.core.scheduling.starter import SequenceStarter
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.scheduling.turns import MAX_PASSES
from quire.core.stages import Stages
from quire.core.swap_manager import SwapManager
from quire.outputs import BlockTransfer


@dataclass(frozen=True, slots=True)
class StepPlanner:
    """Fills the step that `step` builds."""

    queue: RequestQueue
    swap: SwapManager
    stages: Stages
    step: StepBuilder
    budget: StepBudget
    recovery: Recovery
    admission: Admission
    starter: SequenceStarter
    counts: SchedulerCounts
    claims: Counter[str] = field(default_factory=Counter)  #: prompt tokens of the step that are kept, by tenant

    def fill(self, stage: int) -> None:
        """Spend the step's budget on the requests that compute with this stage of the model."""
        step, running, budget = self.step, self.queue.running, self.budget
        step.select_stage(stage)
        budget.begin()
        while running and self.queue.holds_back(running[-1]):
            running[-1].num_yields += 1
            self._preempt(running[-1])
        heir, num_promised = None, 0
        if self.queue.turns.are_taken:
            if self.queue.waiting and (heir := self._yield_blocks()) is not None:
                num_promised = self.admission.count_needed(heir) + self.admission.num_kept_free
                step.reserve(num_promised)  # parked samples would start again
            self._claim_chunks(stage)
        at = 0
        while at < len(running) and budget.left > 0:
            at += self._schedule_decodes(at)
            if at == len(running) or budget.left <= 0:
                break
            request = running[at]
            if request.stage != stage:
                self._reserve_missing(request)
            else:
                self._schedule_request(request)
            if request.status is RequestStatus.RUNNING:  # else it preempted itself, and the next one has its position
                at += 1
        step.reserve(-num_promised)
        while self.queue.waiting and budget.left > 0 and (head := self._next_to_admit(stage, heir)) is not None:
            if self.admission.must_wait_for_document(head):
                self.queue.block(head, BlockedReason.DOCUMENT)
                continue
            num_parked = max(0, step.num_reserved - self._count_missing()) if head is heir else 0
            step.reserve(-num_parked)
            self.queue.run(head)
            self._schedule_request(head)
            step.reserve(num_parked)

    def _next_to_admit(self, stage: int, heir: Request | None) -> Request | None:
        """Return the next request to run: the first whose turn it is, or one that may pass it. Parked samples reserve
        nothing that was freed for `heir`."""
        queue, passed = self.queue, list[Request]()
        num_kept = 0  #: blocks for the passed requests
        for request in queue.heads():
            num_reserved = self._count_missing() if request is heir else self.step.num_reserved
            if request.stage == stage and self.admission.can_run(request, queue, num_reserved, is_passing=bool(passed)):
                num_reserved += num_kept
                is_harmless = request.is_spare and self.admission.has_room(request, queue.running, num_reserved)
                if any(each.num_passed >= MAX_PASSES and not is_harmless for each in passed):
                    return None
                self._set_streams()
                if self.budget.grant(0, 2, self._num_kept(request.tenant)) == 0:  # its tenant has had its share
                    num_kept += self.admission.count_needed(request)
                    continue
                for each in passed:
                    each.num_passed += not is_harmless
                return request
            passed.append(request)
            num_kept += self.admission.count_needed(request)
        return None

    def _claim_chunks(self, stage: int) -> None:
        """Divide the step among the tenants with prompts to compute: an older long prompt leaves the others theirs."""
        queue, claims = self.queue, self.claims
        claims.clear()
        for seq in [seq for request in queue.running if request.stage == stage for seq in request.unfinished]:
            if (num_missing := len(seq.token_ids) - seq.num_computed_tokens) > 1:
                claims[seq.request.tenant] += num_missing
        for head in queue.heads() if claims else ():
            if head.tenant not in claims and self.admission.can_run(head, queue, self._count_missing()):
                claims[head.tenant] = len(head.unfinished[0].token_ids)
        share = self.budget.most_beside_streams // max(1, len(claims))
        claims.update({tenant: min(0, share - num_tokens) for tenant, num_tokens in claims.items()})

    def _yield_blocks(self) -> Request | None:
        """Free blocks for the first waiting request whose tenant is below its share of the pool, and return it: preempt
        requests of tenants above theirs, and park samples of the oldest. None if that is not enough."""
        queue = self.queue
        held = self._count_blocks(queue.running)
        share = self.swap.kv.pool.num_blocks // len(queue.turns.num_open)
        for head in queue.heads():
            if held[head.tenant] + self.admission.count_needed(head) > share:
                continue
            while not self.admission.has_room(head, queue.running, self._count_missing()):
                if not self._yield_one(held, share):
                    return None
            return head
        return None

    def _count_missing(self) -> int:
        """Count the blocks that known tokens of running sequences still need, except parked ones."""
        sequences = [seq for request in self.queue.running for seq in request.unfinished]
        held = [seq for seq in sequences if seq.block_table or seq is seq.request.unfinished[0]]
        return sum(max(0, self._missing_blocks(seq)) for seq in held)

    def _yield_one(self, held: Counter[str], share: int) -> bool:
        """Preempt the youngest request of the heaviest tenant, or park a sample. False if none is above its share."""
        running = self.queue.running
        tenant, most = held.most_common(1)[0] if held else ("", 0)
        if most <= share:
            return False
        victim = self.recovery.choose_victim([each for each in running[1:] if each.tenant == tenant])
        if victim is not None:
            victim.num_yields += 1
            held -= self._count_blocks([victim])
            self._preempt(victim)
            return True
        progressing = next((seq for seq in running[0].unfinished if seq.candidates is None), None)
        others = [seq for seq in running[0].unfinished if seq.block_table and seq is not progressing]
        if running[0].tenant != tenant or not others:
            return False
        held[tenant] -= len(others[-1].block_table)
        self._drop(others[-1])
        return True

    def _of_heaviest(self, requests: list[Request]) -> list[Request]:
        """Return the requests of the tenant that holds most; all if no tenants take turns."""
        if not self.queue.turns.are_taken or not requests:
            return requests
        held = self._count_blocks(self.queue.running)
        tenant = max(requests, key=lambda request: held[request.tenant]).tenant
        return [each for each in requests if each.tenant == tenant]

    def _count_blocks(self, requests: Seq[Request]) -> Counter[str]:
        """Count the entries of block tables, by tenant."""
        held = Counter[str]()
        for seq in [seq for request in requests for seq in request.unfinished]:
            held[seq.request.tenant] += len(seq.block_table)
        return held

    def _schedule_decodes(self, first: int) -> int:
        """Schedule running requests from `first` on, up to the first that needs a decision; return their number."""
        if self.stages.older is not None:  # some compute with another stage
            return 0
        requests = self.queue.running[first : first + self.budget.max_decodes]
        seq_ids, num_context, new_blocks = self.swap.kv.append_decodes(requests)
        if seq_ids:
            self.budget.charge_decodes(len(seq_ids))
            self.step.add_decodes(seq_ids, num_context, new_blocks)
            if self.queue.turns.are_taken:
                for request in requests[: len(seq_ids)]:
                    self.queue.turns.charge(request.tenant, 1)
        return len(seq_ids)

    def _reserve_missing(self, request: Request) -> None:
        """Reserve the blocks for the known tokens of a request whose stage is not computed in this step."""
        for seq in request.unfinished:
            if seq.candidates is None:
                self.step.reserve(max(0, self._missing_blocks(seq)))

    def _schedule_request(self, request: Request) -> None:
        """Schedule all sequences of a request that hold blocks, or preempt it whole. The sequences of the oldest
        request, which may not be preempted, run in turns where they do not fit together."""
        step, budget = self.step, self.budget
        is_oldest = request is self.queue.running[0]
        for seq in request.unfinished:
            if (loaded := self.swap.pop_loaded(seq)) is not None:
                step.remove(seq)  # the runner knows the blocks before the loaded ones alone
                self.starter.adopt_loaded(seq, loaded)
        if not self._make_room_for(request) and not is_oldest:
            return  # preempted itself
        has_progress = False
        for seq in list(request.unfinished):
            if budget.left == 0:
                break
            if seq.candidates is not None:
                continue
            if not seq.block_table and not self._start(seq, is_forced=is_oldest and not has_progress):
                step.reserve(self.swap.kv.blocks_for(len(seq.token_ids)))
                continue
            num_new = self._grant(seq)
            if num_new and seq.loading is not None:
                num_new = min(num_new, seq.loading.start - seq.num_computed_tokens)
                has_progress |= num_new == 0  # the rest is loading
            if num_new == 0:
                has_progress |= seq.is_unsampled
                step.reserve(self._missing_blocks(seq))
                continue
            has_progress |= self._compute_where_room(seq, num_new, is_forced=is_oldest and not has_progress)

    def _compute_where_room(self, seq: Sequence, num_new: int, *, is_forced: bool) -> bool:
        """Compute the next tokens, or if `is_forced` as many as fit; else park `seq`. Returns whether it progresses."""
        kv = self.swap.kv
        while (appended := kv.append_slots(seq, num_new)) is None:
            if not self._park_sibling(seq):
                break
        if appended is None and is_forced and (room := self._room_for(seq)):
            num_new = room
            appended = kv.append_slots(seq, num_new)
        if appended is None:
            if not seq.request.is_single:  # its turn comes when a sibling has ended
                self._drop(seq)
            self.step.reserve(self._missing_blocks(seq))
            return False
        self._compute(seq, num_new, appended)
        return True

    def _compute(self, seq: Sequence, num_new: int, appended: tuple[list[int], BlockTransfer | None]) -> None:
        start = seq.num_computed_tokens - num_new
        self.queue.turns.charge(seq.request.tenant, num_new)
        if self.claims:
            self.claims[seq.request.tenant] = max(0, self.claims[seq.request.tenant] - num_new)
        if start < seq.num_lost_tokens:
            count = min(num_new, seq.num_lost_tokens - start)
            self.counts.recomputed_tokens += count
            self.recovery.log.record_recomputed(seq.request.request_id, start, count)
        self.step.add(seq, num_new, appended)
        self.budget.charge(start, num_new, is_stream=start + 1 == len(seq.token_ids))
        if seq.num_computed_tokens < len(seq.token_ids):
            self.step.reserve(self._missing_blocks(seq))

    def _grant(self, seq: Sequence) -> int:
        num_missing = len(seq.token_ids) - seq.num_computed_tokens
        if num_missing > 1:
            self._set_streams()
        num_new = self.budget.grant(seq.num_computed_tokens, num_missing, self._num_kept(seq.request.tenant))
        return min(num_new, self.swap.kv.tokens_to_state(seq))

    def _num_kept(self, tenant: str) -> int:
        """Count the tokens of this step that are kept for the prompts of other tenants."""
        return self.claims.total() - self.claims[tenant] if self.claims else 0

    def _set_streams(self) -> None:
        if self.budget.beside is None:
            self.budget.set_streams(self.step.shape.total(), self._pending_decodes())

    def _pending_decodes(self) -> StepShape:
        shape = StepShapeSum()
        for request in self.queue.running:
            if request.stage == self.step.stage:
                for seq in request.unfinished:
                    if len(seq.token_ids) - seq.num_computed_tokens == 1 and seq.candidates is None and seq.block_table:
                        shape.add(seq.num_computed_tokens, 1)
        return shape.total()

    def _missing_blocks(self, seq: Sequence) -> int:
        return self.swap.kv.count_missing(seq, len(seq.block_table))

    def _make_room_for(self, request: Request) -> bool:
        """Preempt others until all sequences of a request that hold blocks can go on. False where they cannot."""
        need = sum(
            self.swap.kv.count_new_blocks(seq, seq.num_computed_tokens + self._grant(seq))
            for seq in request.unfinished
            if seq.block_table and seq.candidates is None and seq.loading is None
        )
        while self.swap.kv.pool.num_available < need:
            if not self.preempt_for(request):
                return False
        return True

    def _room_for(self, seq: Sequence) -> int:
        """Return how many tokens of the oldest request fit, while cancelled loads hold the other blocks."""
        computed = seq.num_computed_tokens
        spare = self.swap.kv.pool.num_available - self.swap.kv.count_new_blocks(seq, computed)
        size = self.swap.kv.block_size
        return max(0, (-(-computed // size) + spare) * size - computed)

    def _start(self, seq: Sequence, *, is_forced: bool) -> bool:
        """Give a sequence without blocks its cached prefix, if the rest fits beside the reserved blocks."""
        pool, request = self.swap.kv.pool, seq.request
        found = self.swap.kv.find_prefix(seq)
        num_evictable = self.swap.kv.count_idle(found)
        missing = self.starter.count_missing(seq, found)
        if pool.num_available - num_evictable < missing + self.step.num_reserved and not is_forced:
            return False
        self.starter.adopt(seq, found)
        if is_forced:
            while pool.num_available < missing and (self.preempt_for(request) or self._park_sibling(seq)):
                pass
        self.starter.load(seq)
        return True

    def preempt_for(self, request: Request) -> bool:
        """Preempt a request so that `request` can go on. False where none is left, or it was itself the victim."""
        # Requests before it are scheduled in this step already, and the oldest is never preempted.
        running = self.queue.running
        candidates = running[max(1, running.index(request)) :]
        victim = self.recovery.choose_victim(self._of_heaviest(candidates)) or self.recovery.choose_victim(candidates)
        if victim is None:
            return False
        victim.num_yields += victim.tenant != request.tenant
        self._preempt(victim)
        return victim is not request

    def _preempt(self, victim: Request) -> None:
        self.recovery.save(victim, self.step.step_id, self.queue.running)
        self.put_back(victim)

    def put_back(self, request: Request) -> None:
        """Drop the blocks of a running request, which waits again."""
        for seq in request.unfinished:
            self._drop(seq)
        request.num_preemptions += 1
        self.counts.preemptions += 1
        self.queue.wait(request)

    def _park_sibling(self, seq: Sequence) -> bool:
        """Drop the blocks of a sibling that can wait: one that has its candidates, else the last one. Siblings are
        scheduled in order, so neither is in this step yet."""
        siblings = [s for s in seq.request.unfinished if s.block_table]
        idle = [s for s in siblings if s.candidates is not None]
        later = [s for s in siblings if s.index > seq.index]
        if not idle and not later:
            return False
        self._drop((idle or later)[-1])
        return True

    def _drop(self, seq: Sequence) -> None:
        self.swap.release_blocks(seq)
        self.step.remove(seq)
