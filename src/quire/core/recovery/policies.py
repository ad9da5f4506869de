"""Whom to preempt, and by which mode the victim comes back: the policies.

`Recompute`, `Swap` and `Threshold` always take the youngest, who has lost the least. `Cost` weighs both by predicted
seconds. The words that they share with the scheduler are in `preemption`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from random import Random

from quire.core.costs.cost_model import CostModel
from quire.core.costs.interface import Costs
from quire.core.recovery.decision_log import Decision, DecisionLog
from quire.core.recovery.exploration import Prober
from quire.core.recovery.interface import Candidate, Preemption, RecoveryMode, RecoveryPolicy, SystemState
from quire.core.recovery.recovery_cost import CandidateCosts, RecoveryCost

__all__ = [
    "Candidate",
    "Cost",
    "Decision",
    "Preemption",
    "Recompute",
    "RecoveryMode",
    "RecoveryPolicy",
    "Swap",
    "SystemState",
    "Threshold",
    "make_policy",
]  # fmt: skip

POLICIES = "recompute, swap, threshold:N, threshold:N:swap-above, cost"

_SURPRISE = 2.0  #: times what was predicted: more than noise, less than a link that is ten times slower


def _can_swap(candidate: Candidate, state: SystemState) -> bool:
    """Whether there is something to swap, and room for what has to be saved."""
    return candidate.num_full_blocks > candidate.num_shared and candidate.has_room(0, state.free_slots)


class Recompute(RecoveryPolicy):
    """The youngest gives way and is computed again: it has lost the least, and the oldest always gets through."""

    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        return Preemption(candidates[-1].request, RecoveryMode.RECOMPUTE)


class Swap(RecoveryPolicy):
    """The youngest gives way and is swapped, as long as the swap tier has room."""

    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        youngest = candidates[-1]
        return Preemption(youngest.request, RecoveryMode.SWAP if _can_swap(youngest, state) else RecoveryMode.RECOMPUTE)


class Threshold(RecoveryPolicy):
    """The youngest gives way, by the mode that its length says: the paper's policy (CPS, section 3.3).

    Args:
        num_tokens: requests of up to so many tokens are swapped and longer ones computed again.
        swap_above: the other way round: longer ones are swapped.
    """

    def __init__(self, num_tokens: int, swap_above: bool = False) -> None:
        self.num_tokens = num_tokens
        self.swap_above = swap_above

    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        youngest = candidates[-1]
        wants_swap = (youngest.num_tokens > self.num_tokens) == self.swap_above
        is_swap = wants_swap and _can_swap(youngest, state)
        return Preemption(youngest.request, RecoveryMode.SWAP if is_swap else RecoveryMode.RECOMPUTE)


class Cost(RecoveryPolicy):
    """Whoever costs least to bring back for each block that it frees, by the mode that costs least.

    What counts of a mode is what it spends (`road_costs`): seconds of the link for what is swapped, less those that a
    later preemption will be spared, seconds added to steps for what is computed; and for what is swapped, the wait
    behind what the link has to do already. A mixed mode is taken where it brings the request back sooner than either
    pure one and spends no more.

    Against thrashing: a younger candidate is preferred to an older one that is not much cheaper, because the youngest
    is the next to go in any case. A candidate's cost grows a little with how often it has been preempted, but no more
    than that: what was saved of it need not be saved again. Requests of one length keep their mode until the other is
    cheaper by more than the predictions' uncertainty. The same calls with the same seed decide the same.

    Args:
        costs: who predicts. Only a `CostModel` is probed for: tables do not change.
        age_margin: what share of the cost an older candidate must save.
        again_penalty: the share by which each earlier preemption adds to a candidate's cost.
        mode_margin: at most what share of the cost is let go for keeping a mode.
        mixed_margin: what share of the time a mixed mode must save; it may spend as much more as `mixed_excess` says.
        mixed_excess: see there.
        load_margin: how much longer than computing loading may take, by what is known when a request comes back, for
            the mode that was chosen for it to be kept.
        probe_share: of the engine's seconds, for probes and samples of the link; and as much for probes of computing.
        probe_every: decisions after which a mode without samples is probed.
        regret_sample: share of decisions in which the other mode is really taken, to learn what would have been.
        seed: of samples and probes.
    """

    def __init__(
        self,
        costs: Costs,
        *,
        age_margin: float = 0.5,
        again_penalty: float = 0.1,
        mode_margin: float = 0.05,
        mixed_margin: float = 0.05,
        mixed_excess: float = 0.02,
        load_margin: float = 0.25,
        probe_share: float = 0.01,
        probe_every: int = 8,
        regret_sample: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.costs = costs
        self.age_margin = age_margin
        self.again_penalty = again_penalty
        self.mode_margin = mode_margin
        self.mixed_margin = mixed_margin
        self.mixed_excess = mixed_excess
        self.load_margin = load_margin
        self.regret_sample = regret_sample
        self.log = DecisionLog()
        self.prober: Prober | None = None
        if isinstance(costs, CostModel):
            self.prober = Prober(costs, probe_share, probe_every, seed)
        self._random = Random(seed)
        self._last_modes: dict[int, RecoveryMode] = {}  #: by octave of the tokens

    # -- choosing --------------------------------------------------------------------------------------------------

    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        victim, modes, options = self._choose_victim(candidates, state)
        octave = victim.num_tokens.bit_length()
        taken = self._prefer(options, self._last_modes.get(octave))
        self._last_modes[octave] = taken.mode
        sample, probe = self._sample(options, taken), None
        if sample is not None:
            taken = sample
        elif self.prober is not None:
            probe = self.prober.propose(modes, taken.mode, taken.spent.seconds)
            taken = probe.cost if probe is not None else taken
        predicted = {option.mode.value: option.spent.seconds for option in (*options, taken)}
        request_id, is_sample = victim.request.request_id, sample is not None
        self.log.add(Decision(request_id, state.now_step, victim.num_tokens, taken.mode, predicted, probe, is_sample))
        probes = probe.probes if probe is not None else None
        return Preemption(victim.request, taken.mode, taken.keep_from, predicted, probes, is_sample)

    def _choose_victim(
        self, candidates: Sequence[Candidate], state: SystemState
    ) -> tuple[Candidate, CandidateCosts, list[RecoveryCost]]:
        """The victim, with its modes and those of them that it may take."""
        best: tuple[Candidate, CandidateCosts, list[RecoveryCost]] | None = None
        best_score = math.inf
        for candidate in reversed(candidates):
            modes = CandidateCosts(self.costs, candidate, state)
            options = self._options(modes)
            penalty = 1.0 + self.again_penalty * candidate.request.num_preemptions
            cost = min(option.net_time for option in options) * penalty
            score = cost / candidate.num_freed if candidate.num_freed > 0 else math.inf
            if best is None or score < best_score * (1.0 - self.age_margin):
                best, best_score = (candidate, modes, options), score
        assert best is not None
        return best

    def _options(self, modes: CandidateCosts) -> list[RecoveryCost]:
        """The modes that are open, pure ones first."""
        if isinstance(self.costs, CostModel) and not self.costs.is_link_usable:
            return [modes.recompute()]  # a link that is unknown or fails gets probes before it gets whole requests
        swap, mixed = modes.swap(), modes.best_mixed()
        pure = [modes.recompute()] if swap is None else [modes.recompute(), swap]
        least_time = min(option.net_time for option in pure)
        least_spent = min(option.net_spent for option in pure)
        if (
            mixed is not None
            and mixed.net_time <= least_time * (1.0 - self.mixed_margin)
            and mixed.net_spent <= least_spent * (1.0 + self.mixed_excess)
        ):
            return [*pure, mixed]
        return pure

    def _prefer(self, options: list[RecoveryCost], last: RecoveryMode | None) -> RecoveryCost:
        """The cheapest mode, or the last one where the difference is none that matters."""
        best = min(options, key=lambda option: option.net_time)
        kept = next((option for option in options if option.mode is last), best)
        if RecoveryMode.MIXED in (best.mode, kept.mode):
            return best  # it is there only where it is clearly the best
        joint = (best.spent + kept.spent).deviation
        margin = min(joint, self.mode_margin * kept.back_after)
        return kept if kept.net_time - best.net_time <= margin else best

    def _sample(self, options: list[RecoveryCost], taken: RecoveryCost) -> RecoveryCost | None:
        """Now and then, a pure mode that would not be taken."""
        others = [option for option in options if option.mode not in (taken.mode, RecoveryMode.MIXED)]
        if not others or self.regret_sample <= 0.0 or self._random.random() >= self.regret_sample:
            return None
        return min(others, key=lambda option: option.net_time)

    def is_worth_loading(self, start: int, end: int, state: SystemState) -> bool:
        """What was saved may be brought back by either mode, and the link may have changed since it was.

        What the link has to do before does not count: waiting delays this request alone, computing everybody.
        """
        if isinstance(self.costs, CostModel) and self.costs.is_failing("load"):
            return False
        load = self.costs.load((end - start) // state.block_size * state.block_bytes)
        return load.seconds <= self._compute_seconds(start, end, state) * (1.0 + self.load_margin)

    def is_worth_saving(self, start: int, end: int, state: SystemState) -> bool:
        if isinstance(self.costs, CostModel) and not self.costs.is_link_usable:
            return False
        num_bytes = (end - start) // state.block_size * state.block_bytes
        save, load = self.costs.save(num_bytes), self.costs.load(num_bytes)
        swap_s = save.seconds * (1.0 - state.eviction_stats.again) + load.seconds
        return swap_s <= self._compute_seconds(start, end, state) * (1.0 + self.load_margin)

    def _compute_seconds(self, start: int, end: int, state: SystemState) -> float:
        beside, chunk = state.decoding_beside, state.chunk_beside
        return self.costs.recompute(end - start, start=start, chunk=chunk, beside=beside).seconds

    # -- what it was worth -----------------------------------------------------------------------------------------

    @property
    def decisions(self) -> deque[Decision]:
        """The latest, oldest first."""
        return self.log.decisions

    def note_actual(self, request_id: str, seconds: float, *, fell_back: bool = False) -> None:
        decision = self.log.note_actual(request_id, seconds, fell_back=fell_back)
        if self.prober is None or decision is None:
            return
        if decision.probe is not None:
            self.prober.settle(decision.probe)
        predicted = decision.predicted.get(decision.mode.value, seconds)
        if seconds > _SURPRISE * predicted:
            self.prober.note_surprise(seconds - predicted)

    @property
    def median_error(self) -> float | None:
        """Of what decisions were predicted to cost, relative; None before any has been paid."""
        return self.log.error_quantile(0.5)

    @property
    def p90_error(self) -> float | None:
        return self.log.error_quantile(0.9)

    @property
    def regret(self) -> float | None:
        """What share of seconds the other mode would have saved (`DecisionLog.regret`); None without samples."""
        return self.log.regret


def make_policy(
    text: str, cost_model: CostModel | None, *, regret_sample: float = 0.0, seed: int = 0
) -> RecoveryPolicy:
    """The policy that a user named.

    Args:
        text: one of `POLICIES`.
        cost_model: what "cost" asks.
        regret_sample: of "cost".
        seed: of "cost".

    Raises:
        ValueError: there is no such policy, or "cost" has nothing to ask.
    """
    name, *options = text.strip().split(":")
    if name == "recompute" and not options:
        return Recompute()
    if name == "swap" and not options:
        return Swap()
    if name == "cost" and not options:
        if cost_model is None:
            raise ValueError("recovery_policy='cost' needs a cost model to ask; give one, or choose another policy")
        return Cost(cost_model, regret_sample=regret_sample, seed=seed)
    if name == "threshold" and options and options[1:] in ([], ["swap-above"]):
        number = options[0]
        if not (number.isascii() and number.isdigit()):
            raise ValueError(f"recovery_policy={text!r}: the threshold is a number of tokens, as in threshold:1024")
        return Threshold(int(number), swap_above=len(options) == 2)
    raise ValueError(f"recovery_policy={text!r} is none of {POLICIES}")
