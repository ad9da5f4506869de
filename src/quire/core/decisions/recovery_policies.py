"""Whom to preempt, and by which mode the victim comes back: the policies.

Every policy preempts the youngest candidate: it has lost least, and it would be the next to go in any case. (A choice
by predicted cost was measured against this rule, and was no better: docs/recovery.md.) `Recompute`, `Swap` and
`Threshold` go by a rule; `Cost` compares predicted seconds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from quire.config import read_recovery_policy
from quire.core.decisions.costs import Costs
from quire.core.decisions.recovery_cost import CandidateCosts, RecoveryCost
from quire.core.decisions.recovery_interface import Candidate, Preemption, RecoveryMode, RecoveryPolicy, SystemState

_FIRST_TRY, _RAREST_TRY = 2, 16  #: victims in a row that are computed before one tries the link


class Youngest(RecoveryPolicy):
    """Preempts the youngest candidate; a subclass says how it comes back."""

    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        return self.recover(candidates[-1], state)

    @abstractmethod
    def recover(self, victim: Candidate, state: SystemState) -> Preemption:
        """The victim's recovery mode."""


class Recompute(Youngest):
    """Computes the victim again."""

    def recover(self, victim: Candidate, state: SystemState) -> Preemption:
        return Preemption(victim.request, RecoveryMode.RECOMPUTE)


class Threshold(Youngest):
    """Swaps or computes by the victim's length: the CPS paper's policy (section 3.3).

    Args:
        num_tokens: requests of up to so many tokens are swapped and longer ones computed again.
        swap_above: the other way round: longer ones are swapped.
    """

    def __init__(self, num_tokens: int, swap_above: bool = False) -> None:
        self.num_tokens = num_tokens
        self.swap_above = swap_above

    def recover(self, victim: Candidate, state: SystemState) -> Preemption:
        wants_swap = (victim.num_tokens > self.num_tokens) == self.swap_above
        has_something = victim.num_full_blocks > victim.num_shared
        can_swap = has_something and victim.has_room(0, state.free_slots)
        return Preemption(victim.request, RecoveryMode.SWAP if wants_swap and can_swap else RecoveryMode.RECOMPUTE)


class Swap(Threshold):
    """Swaps the victim, as long as the swap tier has room."""

    def __init__(self) -> None:
        super().__init__(-1, swap_above=True)


class Cost(Youngest):
    """Takes the mode that brings the victim back soonest, by what each is predicted to cost (`recovery_cost`).

    A mixed mode is taken where it brings the request back sooner than either pure one and spends hardly more.

    A link that is slow, fails or was never measured may have changed. So after a few victims in a row that were
    computed, one is swapped, with exponential back-off from `_FIRST_TRY` to `_RAREST_TRY` victims. Its first block
    tells: the rest is cancelled before the next step where it is not worth it (`is_worth_saving`).

    Args:
        costs: who predicts.
        mixed_margin: what share of the time a mixed mode must save.
        mixed_excess: what share of seconds it may spend beyond the best pure mode.
    """

    def __init__(self, costs: Costs, *, mixed_margin: float = 0.05, mixed_excess: float = 0.02) -> None:
        self.costs = costs
        self.mixed_margin = mixed_margin
        self.mixed_excess = mixed_excess
        self._num_computed = 0  #: victims in a row
        self._patience = _FIRST_TRY

    def recover(self, victim: Candidate, state: SystemState) -> Preemption:
        modes = CandidateCosts(self.costs, victim, state)
        recompute, swap = modes.recompute(), modes.swap()
        weighed = [recompute] if swap is None else [recompute, swap]
        if self.costs.is_link_usable:
            mixed = modes.best_mixed()
            weighed += [mixed] if mixed is not None and self._is_better(mixed, weighed) else []
            taken = min(weighed, key=lambda cost: cost.net_time)
        else:
            taken = recompute
        if taken is not recompute:
            self._num_computed, self._patience = 0, _FIRST_TRY
        elif swap is not None:
            self._num_computed += 1
            if self._num_computed > self._patience:
                taken, self._num_computed, self._patience = swap, 0, min(_RAREST_TRY, 2 * self._patience)
        predicted = {cost.mode.value: cost.spent for cost in weighed}
        return Preemption(victim.request, taken.mode, taken.keep_from, predicted)

    def _is_better(self, mixed: RecoveryCost, pure: Sequence[RecoveryCost]) -> bool:
        least_time = min(cost.net_time for cost in pure)
        least_spent = min(cost.net_spent for cost in pure)
        is_sooner = mixed.net_time <= least_time * (1.0 - self.mixed_margin)
        return is_sooner and mixed.net_spent <= least_spent * (1.0 + self.mixed_excess)

    def is_worth_loading(self, start: int, end: int, state: SystemState) -> bool:
        """By what the link has shown since the blocks were saved.

        The link's queue does not count: waiting delays this request alone, computing delays everybody.
        """
        load = self.costs.load((end - start) // state.block_size * state.block_bytes)
        return load <= self._compute_seconds(start, end, state)

    def is_worth_saving(self, start: int, end: int, state: SystemState) -> bool:
        num_bytes = (end - start) // state.block_size * state.block_bytes
        save, load = self.costs.save(num_bytes), self.costs.load(num_bytes)
        swap_s = save * (1.0 - state.eviction_stats.again) + load
        return swap_s <= self._compute_seconds(start, end, state)

    def _compute_seconds(self, start: int, end: int, state: SystemState) -> float:
        beside, chunk = state.decoding_beside, state.chunk_beside
        return self.costs.recompute(end - start, start=start, chunk=chunk, beside=beside)


def make_policy(text: str, costs: Costs | None) -> RecoveryPolicy:
    """The policy that a user named.

    Args:
        text: one of `RECOVERY_POLICIES`.
        costs: what "cost" asks.

    Raises:
        ValueError: there is no such policy, or "cost" has nothing to ask.
    """
    name, num_tokens, swap_above = read_recovery_policy(text)
    if name == "recompute":
        return Recompute()
    if name == "swap":
        return Swap()
    if name == "threshold":
        return Threshold(num_tokens, swap_above)
    if costs is None:
        raise ValueError("recovery_policy='cost' needs a cost model to ask; give one, or choose another policy")
    return Cost(costs)
