"""Recovery policies: `Recompute` and `Swap` follow a fixed rule; `Cost`, the default, asks the decider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq

from quire.config import RECOVERY_POLICIES
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.request import Request

MAX_PREEMPTIONS = 8  #: per request, for every policy; afterwards it is admitted to stay (see `core.scheduler`)


class RecoveryPolicy(ABC):
    """Chooses the victim of a preemption and the blocks to save. `always_loads`: resumed requests load all saved
    blocks."""

    always_loads = True

    def choose_victim(self, running: Seq[Request]) -> Request:
        """The youngest request by default, of at least one with blocks, oldest first, without the oldest of all."""
        return running[-1]

    @abstractmethod
    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        """Choose what to save of the victim. Blocks that the swap tier has no room for are not saved."""


class Recompute(RecoveryPolicy):
    """Computes every victim again."""

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(RecoveryMode.RECOMPUTE)


class Swap(RecoveryPolicy):
    """Swaps every victim for which the swap tier has room."""

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(RecoveryMode.SWAP if victim.can_keep(0) else RecoveryMode.RECOMPUTE)


class Cost(RecoveryPolicy):
    """Recovers with the fewest seconds of link and steps, by the decider's predictions. A link that is not worth using
    may have changed: a recomputed victim may probe it with one block (`LoadOrCompute.plan_probe`)."""

    always_loads = False

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        plan = decider.plan_recovery(victim)
        return plan if plan.mode is not RecoveryMode.RECOMPUTE else decider.plan_probe(victim) or plan


def make_policy(name: str) -> RecoveryPolicy:
    """Make a policy by the name that users give it. ValueError if there is none."""
    policies: dict[str, type[RecoveryPolicy]] = {"recompute": Recompute, "swap": Swap, "cost": Cost}
    if name not in policies:
        raise ValueError(f"recovery_policy={name!r} is not one of {', '.join(RECOVERY_POLICIES)}")
    return policies[name]()
