"""What each recovery mode would cost a candidate, in seconds.

`spent` is what a mode takes from the machine: seconds that the link is busy with saving and loading, and seconds that
computing again adds to steps.

`back_after` is how soon the request could be back, were it let in again at once. Its saves come first, since all loads
wait for them. Then a mixed mode computes and loads at the same time, and a load waits behind the link's queue, which is
taken to be as long as it is now. (A save does not wait: its blocks are staged at once.)

`regained` is what saving is worth beyond this return: saved blocks stay in the swap tier, and need no saving should the
request be preempted again.

Every mode computes the partial last block again. No mode brings back blocks at the front that other requests hold, nor
blocks that are still cached then (`eviction_stats`): every cost is the mean over what may be lost.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from dataclasses import dataclass

from quire.core.decisions.costs import Costs
from quire.core.decisions.recovery_interface import Candidate, RecoveryMode, SystemState


@dataclass(frozen=True, slots=True)
class RecoveryCost:
    mode: RecoveryMode
    spent: float  #: seconds
    back_after: float
    keep_from: int = 0  #: MIXED: first block that is saved
    regained: float = 0.0  #: expected, in seconds of saves to come

    @property
    def net_time(self) -> float:
        return self.back_after - self.regained

    @property
    def net_spent(self) -> float:
        return self.spent - self.regained


class CandidateCosts:
    """The modes of one candidate.

    Args:
        costs: who predicts.
        candidate: whose modes.
        state: the moment. Computing again is added to what of the last step goes on: its decoding.
    """

    def __init__(self, costs: Costs, candidate: Candidate, state: SystemState) -> None:
        self._costs = costs
        self._candidate = candidate
        self._state = state
        self._beside, self._chunk = state.decoding_beside, state.chunk_beside
        self.num_full = candidate.num_full_blocks
        self.first = candidate.num_shared  #: the first block that has to come back
        self._num_tokens = candidate.num_tokens
        # Blocks of several sequences have no common place in a table, so that front and back are not defined.
        self.has_parts = candidate.request.width == 1
        num_given_up = self.num_full - self.first
        self._lost = state.eviction_stats.expect(num_given_up) if self.has_parts else [num_given_up]
        if candidate.gap:  # blocks that are not there yet are not found again either
            self._lost = [max(lost, self.num_full - candidate.gap.start) for lost in self._lost]

    @property
    def _least_kept(self) -> int:
        """From where on blocks can be kept: a return loads one run of them."""
        return self._candidate.gap.stop if self._candidate.gap else 0

    def recompute(self) -> RecoveryCost:
        spent = statistics.fmean([self._compute(self.num_full - lost, None) for lost in self._lost])
        return RecoveryCost(RecoveryMode.RECOMPUTE, spent, spent)

    def swap(self) -> RecoveryCost | None:
        """None where there is nothing to swap or no room for it, and where a block is still to be computed."""
        if self.num_full <= self.first or self._candidate.gap:
            return None
        return self.mixed(self.first, RecoveryMode.SWAP)

    def mixed(self, keep_from: int, mode: RecoveryMode = RecoveryMode.MIXED) -> RecoveryCost | None:
        """Blocks from `keep_from` on saved and, if lost, loaded; lost blocks before it computed.

        None where the tier has no room, or a block to save is still to be computed.
        """
        state, candidate = self._state, self._candidate
        kept = 0 if mode is RecoveryMode.SWAP else keep_from  # shared blocks are kept too, where the tier has them
        if keep_from < self._least_kept or not candidate.has_room(kept, state.free_slots):
            return None
        num_back = self.num_full - keep_from
        save = self._costs.save(candidate.to_save_from[keep_from] * state.block_bytes)
        tail = self._compute(self.num_full, None)
        queued = self._costs.load(state.queued_bytes)
        spent, back_after = [], 0.0
        for lost in self._lost:
            front = self._compute(self.num_full - lost, keep_from)
            load = self._costs.load(min(lost, num_back) * state.block_bytes)
            back_after += max(front, queued + load if lost else 0.0) / len(self._lost)
            spent.append(front + load)
        total = statistics.fmean(spent) + save + tail
        regained = state.eviction_stats.again * save
        return RecoveryCost(mode, total, back_after + save + tail, keep_from, regained)

    def best_mixed(self) -> RecoveryCost | None:
        """The mixed mode that brings the request back soonest.

        Either it saves just what will be lost, or nothing, since that end of it is in the tier already; or its front is
        computed while its back loads: with a longer front, computing grows and loading shrinks, and the best split is
        where they meet, found by bisection.
        """
        low, high = max(self.first + 1, self._least_kept), self.num_full - 1
        if not self.has_parts or low > high:
            return None
        places = {self.num_full - lost for lost in self._lost}
        places.add(self._candidate.to_save_from.index(0))
        low += bisect_left(range(low, high), True, key=self._is_computing_longer)
        places |= {low - 1, low}
        options = [self.mixed(at) for at in sorted(places) if self.first < at < self.num_full]
        found = [option for option in options if option is not None]
        return min(found, key=lambda option: option.net_time) if found else None

    def _is_computing_longer(self, keep_from: int) -> bool:
        """Whether the front takes longer than the back, where all is lost."""
        state = self._state
        front = self._compute(self.first, keep_from)
        load = self._costs.load((self.num_full - keep_from) * state.block_bytes)
        return front >= load + self._costs.load(state.queued_bytes)

    def _compute(self, start: int, end: int | None) -> float:
        """Blocks [start, end) computed; None is all that there is, the partial last block too."""
        size = self._state.block_size
        num_tokens = (self._num_tokens if end is None else end * size) - start * size
        if num_tokens <= 0:
            return 0.0
        return self._costs.recompute(num_tokens, start=start * size, chunk=self._chunk, beside=self._beside)
