"""Between the scheduler and a recovery policy: what a preemption would cost, what it did cost, and what is taken back.

The scheduler says when room is missing and when a victim goes on. The coordinator describes the candidates to the
policy, has the swap tier keep what the policy chose, looks again at transfers under way, and writes the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from itertools import accumulate

from quire.config import SchedulerConfig
from quire.core.decisions.costs import EMPTY_STEP, StepShape, decoding_beside
from quire.core.decisions.eviction_stats import EvictionStats
from quire.core.decisions.recovery_interface import (
    MAX_CANDIDATES,
    Candidate,
    Preemption,
    RecoveryMode,
    RecoveryPolicy,
    SystemState,
)
from quire.core.decisions.recovery_log import RecoveryLog
from quire.core.decisions.step_budget import StepBudget
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, RequestStatus, Sequence
from quire.core.swap_manager import BlockSpan, SwapManager
from quire.outputs import TransferReport


class RecoveryCoordinator:
    """Recovery of one scheduler's requests.

    Args:
        policy: decides whom to preempt, and how the victim comes back.
        config: of the scheduler.
        kv: block tables and pool.
        swap: the swap tier.
        budget: of the steps that compute again what was dropped.
    """

    def __init__(
        self,
        policy: RecoveryPolicy,
        config: SchedulerConfig,
        kv: KVCacheManager,
        swap: SwapManager,
        budget: StepBudget,
    ) -> None:
        self.policy = policy
        self.log = RecoveryLog()
        self.eviction_stats = EvictionStats()
        self._config = config
        self._kv = kv
        self._swap = swap
        self._budget = budget
        self._last_shape = EMPTY_STEP

    # -- a step ------------------------------------------------------------------------------------------------------

    def begin_step(self, last_shape: StepShape, requests: Mapping[str, Request]) -> None:
        """Before a step is made: cancel transfers that are no longer worth it, by what has been learnt meanwhile.

        Args:
            last_shape: of the step before: what computing again would be added to.
            requests: by id.
        """
        self._last_shape = last_shape
        self.log.begin_step()
        if not self._swap.num_under_way:
            return
        swap, policy = self._swap, self.policy
        for recovery in self.log.open_recoveries():
            for seq in requests[recovery.request_id].unfinished:
                if seq.loading is not None and seq.loading.is_recovery:
                    self._reconsider(seq, swap.unloaded(seq), policy.is_worth_loading, swap.cancel_loads)
                elif seq.loading is None and recovery.num_saving and seq.swapped_keys:
                    self._reconsider(seq, swap.unsaved(seq), policy.is_worth_saving, swap.cancel_saves)

    def _reconsider(
        self,
        seq: Sequence,
        span: BlockSpan | None,
        is_worth: Callable[[int, int, SystemState], bool],
        cancel: Callable[[Sequence, BlockSpan], int],
    ) -> None:
        if span is None or is_worth(*self._tokens_of(span), self._system_state()):
            return
        if cancel(seq, span):
            self.log.note_fallback(seq.request.request_id)

    def end_step(self, reports: Iterable[TransferReport], requests: Mapping[str, Request]) -> None:
        """A step has brought these reports; who stands again where it stood has recovered."""
        self.log.note_transfers(reports)
        for recovery in self.log.open_recoveries():
            if _is_back(requests[recovery.request_id]):
                self.log.complete(recovery.request_id)

    # -- giving way --------------------------------------------------------------------------------------------------

    def choose_victim(self, running: Seq[Request]) -> Preemption | None:
        """Whom to preempt, and how it comes back.

        Args:
            running: who may be preempted, oldest first.

        Returns:
            None where none of them has anything to give.
        """
        candidates = [request for request in running if self._has_something_to_give(request)][-MAX_CANDIDATES:]
        if not candidates:
            return None
        choice = self.policy.choose([self._candidate(request) for request in candidates], self._system_state())
        assert choice.victim in candidates, "only a candidate may be preempted"
        return choice

    def give_up(self, choice: Preemption, step_id: int) -> None:
        """Have the swap tier keep what the victim is to come back with. Its blocks are given up right after."""
        victim = choice.victim
        given_up = self._given_up_by(victim)
        save_ids: list[int] = []
        for seq in victim.unfinished:
            self._swap.release(seq)
        if choice.mode is not RecoveryMode.RECOMPUTE:
            keep_from = choice.keep_from if choice.mode is RecoveryMode.MIXED else 0
            save_ids = self._swap.swap_out(victim.unfinished, keep_from, given_up)
        num_tokens = max(max(seq.num_computed_tokens, seq.num_lost_tokens) for seq in victim.unfinished)
        recovery = self.log.give_up(step_id, num_tokens, choice, save_ids)
        self.eviction_stats.observe_preemption(is_repeated=victim.num_preemptions > 0)
        first = victim.unfinished[0]
        if victim.width == 1 and first.loading is None:  # whether blocks that are being loaded stay is not known
            full = self._kv.full_blocks(first)
            recovery.num_full = len(full)
            recovery.num_given_up = sum(1 for block in full if block in given_up)

    def _has_something_to_give(self, request: Request) -> bool:
        """Not a request that only waits for its blocks, or for room to begin."""
        if any(seq.loading is not None for seq in request.unfinished):
            return bool(self._given_up_by(request))
        return any(seq.block_table for seq in request.unfinished)

    def _given_up_by(self, request: Request) -> set[int]:
        """The blocks that nobody holds any more once a request has given up its own."""
        holds: dict[int, int] = {}
        for seq in request.unfinished:
            for block in seq.block_table:
                holds[block] = holds.get(block, 0) + 1
        ref_counts = self._kv.pool.ref_counts
        return {block for block, count in holds.items() if ref_counts[block] == count}

    def _candidate(self, request: Request) -> Candidate:
        kv, tier = self._kv, self._swap.tier
        given_up = self._given_up_by(request)
        full: dict[int, bytes] = {}  # the distinct full blocks, with their keys
        coming: set[int] = set()  # of these, blocks whose loads have not ended
        partial = 0
        for seq in request.unfinished:
            full |= kv.filled_blocks(seq)
            if seq.loading is None:
                partial += seq.num_computed_tokens % kv.block_size
            else:
                coming.update(seq.block_table[seq.num_computed_tokens // kv.block_size :])
        first = kv.filled_blocks(request.unfinished[0])
        num_shared = next((at for at, block in enumerate(first) if block in given_up), len(first))
        to_save = (
            block in given_up and block not in coming and not self._swap.is_kept(key) for block, key in full.items()
        )
        return Candidate(
            request=request,
            num_tokens=len(full) * kv.block_size + partial,
            num_shared=num_shared,
            to_save_from=_count_from(to_save),
            idle_from=_count_from(tier.is_idle(key) for key in full.values()),
            gap=_gap(request.unfinished[0], kv.block_size) if request.width == 1 else range(0),
        )

    # -- coming back -------------------------------------------------------------------------------------------------

    def resume(self, seq: Sequence) -> bool:
        """A sequence goes on with the blocks that it found. Load what was swapped of the rest, if it is worth it.

        Loading a front that is not worth it would be noticed a step later; asking here saves the attempt.

        Returns:
            False where nothing was swapped for it.
        """
        request_id, num_found = seq.request.request_id, len(seq.block_table)
        recovery = self.log.open_of(request_id)
        if recovery is not None and recovery.num_given_up > 0:
            self.eviction_stats.observe(recovery.num_given_up, max(0, recovery.num_full - num_found))
        if not seq.swapped_keys:
            return False
        span = self._swap.find_loadable(seq, num_found)
        if span is not None and self._has_room(span, num_found) and self._is_worth_loading(span):
            self.log.note_load(request_id, self._swap.swap_in(seq, span))
            assert seq.loading is not None
            seq.loading.is_recovery = True
        elif span is not None or (recovery is not None and num_found < recovery.num_full):
            self.log.note_fallback(request_id)  # not worth loading, or lost by the tier
        self._swap.release(seq)
        return True

    def _has_room(self, span: BlockSpan, num_found: int) -> bool:
        return self._kv.pool.num_available >= span.end - num_found

    def _is_worth_loading(self, span: BlockSpan) -> bool:
        return self.policy.is_worth_loading(*self._tokens_of(span), self._system_state())

    # -- what the policy is told -------------------------------------------------------------------------------------

    def _tokens_of(self, span: BlockSpan) -> tuple[int, int]:
        return span.start * self._config.block_size, span.end * self._config.block_size

    def _system_state(self) -> SystemState:
        config = self._config
        return SystemState(
            block_size=config.block_size,
            block_bytes=config.block_bytes,
            chunk_beside=self._budget.chunk_beside(decoding_beside(self._last_shape)),
            free_slots=self._swap.tier.num_available,
            queued_bytes=self._swap.num_queued("host", is_waited_for=True) * config.block_bytes,
            beside=self._last_shape,
            eviction_stats=self.eviction_stats,
        )


def _is_back(request: Request) -> bool:
    """Whether a request that was preempted has computed again all that it had."""
    return request.status is RequestStatus.RUNNING and all(
        seq.loading is None and seq.num_computed_tokens >= seq.num_lost_tokens
        for seq in request.unfinished
        if seq.candidates is None
    )


def _gap(seq: Sequence, block_size: int) -> range:
    """The blocks, by their places in the table, that are to be computed before the ones that are being loaded."""
    if seq.loading is None:
        return range(0)
    return range(seq.num_computed_tokens // block_size, seq.loading.start // block_size)


def _count_from(flags: Iterable[bool]) -> tuple[int, ...]:
    """How many flags are set from each place on, and 0 after the last."""
    return tuple(accumulate(reversed(list(flags)), initial=0))[::-1]
