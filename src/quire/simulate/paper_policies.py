"""Recovery policies to compare: those of the engine, and the static threshold of the CPS paper."""

from __future__ import annotations

from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import RecoveryPolicy, make_policy


class Threshold(RecoveryPolicy):
    """Swaps requests up to a length, or with `swap_above` longer ones; recomputes others (CPS paper, section 3.3)."""

    def __init__(self, num_tokens: int, *, swap_above: bool = False) -> None:
        self.num_tokens = num_tokens
        self.swap_above = swap_above

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        wants_swap = (victim.num_tokens > self.num_tokens) == self.swap_above
        return RecoveryPlan(RecoveryMode.SWAP if wants_swap and victim.can_keep(0) else RecoveryMode.RECOMPUTE)


def make_compared_policy(text: str) -> RecoveryPolicy:
    """Make an engine's policy, `threshold:N` or `threshold:N:swap-above`. Raises ValueError for others."""
    name, *options = text.strip().split(":")
    if name != "threshold":
        return make_policy(text.strip())
    if not options or options[1:] not in ([], ["swap-above"]) or not (options[0].isascii() and options[0].isdigit()):
        raise ValueError(
            f"recovery_policy={text!r}: expected threshold:N or threshold:N:swap-above, with N a number of tokens"
        )
    return Threshold(int(options[0]), swap_above=len(options) == 2)
