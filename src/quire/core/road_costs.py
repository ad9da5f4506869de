"""What each road back would cost a candidate, in seconds.

Two measures of a road. `spent` is what it takes from the machine: seconds that the link is busy with saving and
loading, and seconds that computing again adds to steps. `back_after` is how long the request's return takes: a mixed
road computes and loads at once, and a load waits behind what the link has to do. (A save's own wait is hidden: its
blocks are staged at once. The queue that a load will meet is taken to be the one that there is now.)

The partial last block is computed again by every road; blocks at the front that others hold come back by none.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.costs import NOTHING, Costs, Prediction
from quire.core.preemption import Candidate, Road, Surroundings


@dataclass(frozen=True, slots=True)
class RoadCost:
    road: Road
    spent: Prediction
    back_after: float
    keep_from: int = 0  #: MIXED: first block that is saved


class CandidateCosts:
    """The roads of one candidate.

    Args:
        costs: who predicts.
        candidate: whose roads.
        around: the moment. Computing again is added to what of the last step goes on: its decoding.
    """

    def __init__(self, costs: Costs, candidate: Candidate, around: Surroundings) -> None:
        self._costs = costs
        self._around = around
        self._beside = around.beside.decoding if around.beside.num_tokens > 0 else None
        self._chunk = max(1, around.chunk - (self._beside.num_tokens if self._beside is not None else 0))
        self.num_full = candidate.num_full_blocks
        self.first = min(candidate.num_shared, self.num_full)  #: the first block that has to come back
        self._num_to_save = min(candidate.num_to_save, self.num_full)
        self._num_tokens = candidate.num_tokens
        # Blocks of several sequences have no common place in a table, so that front and back are not defined.
        self.has_parts = candidate.request.width == 1

    def recompute(self) -> RoadCost:
        start = self.first * self._around.block_size
        spent = self._compute(start, self._num_tokens - start)
        return RoadCost(Road.RECOMPUTE, spent, spent.seconds)

    def swap(self) -> RoadCost | None:
        """None where there is nothing to swap, or no room for it."""
        return self.mixed(self.first, Road.SWAP) if self.num_full > self.first else None

    def mixed(self, keep_from: int, road: Road = Road.MIXED) -> RoadCost | None:
        """Blocks [first, keep_from) computed, those from `keep_from` on saved and loaded. None where it has no room."""
        around = self._around
        num_back = self.num_full - keep_from
        num_to_save = min(num_back, self._num_to_save)  # what is in the tier already was full first: it is the front
        if num_to_save > around.free_slots:
            return None
        size, start = around.block_size, self.first * around.block_size
        front = self._compute(start, keep_from * size - start)
        tail = self._compute(self.num_full * size, self._num_tokens - self.num_full * size)
        save = self._costs.save(num_to_save * around.block_bytes)
        load = self._costs.load(num_back * around.block_bytes)
        queued = self._costs.load(around.queued_bytes).seconds
        back_after = max(front.seconds, queued + load.seconds) + save.seconds + tail.seconds
        return RoadCost(road, front + tail + save + load, back_after, keep_from)

    def best_mixed(self) -> RoadCost | None:
        """The mixed road that brings the request back soonest.

        With a longer front, computing grows and loading shrinks: they meet once, and the best split is where they do
        (or at an end, which is no mixed road). Found by bisection.
        """
        low, high = self.first + 1, self.num_full - 1
        if not self.has_parts or low > high:
            return None
        while low < high:
            middle = (low + high) // 2
            if self._is_computing_longer(middle):
                high = middle
            else:
                low = middle + 1
        options = [self.mixed(at) for at in (low - 1, low) if at > self.first]
        found = [option for option in options if option is not None]
        return min(found, key=lambda option: option.back_after) if found else None

    def link_seconds(self, num_blocks: int) -> float:
        """Seconds of the link for swapping the last so many blocks."""
        num_bytes = num_blocks * self._around.block_bytes
        saved = min(num_blocks, self._num_to_save) * self._around.block_bytes
        return self._costs.save(saved).seconds + self._costs.load(num_bytes).seconds

    def compute_seconds(self, num_blocks: int) -> float:
        """Seconds that computing the first so many blocks adds."""
        size = self._around.block_size
        return self._compute(self.first * size, num_blocks * size).seconds

    def _is_computing_longer(self, keep_from: int) -> bool:
        around = self._around
        start = self.first * around.block_size
        front = self._compute(start, keep_from * around.block_size - start).seconds
        load = self._costs.load((self.num_full - keep_from) * around.block_bytes).seconds
        return front >= load + self._costs.load(around.queued_bytes).seconds

    def _compute(self, start: int, num_tokens: int) -> Prediction:
        if num_tokens <= 0:
            return NOTHING
        return self._costs.recompute(num_tokens, start=start, chunk=self._chunk, beside=self._beside)
