"""Whom to preempt, and by which road the victim comes back.

One road exists so far: recompute. Swap joins as a second `Road` together with the tiers, and a policy that weighs the
two by measured cost as a second class beside `LastInFirstOut`; the scheduler asks only `choose`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from quire.request import Request


class Road(enum.Enum):
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Preemption:
    victim: Request
    road: Road


class RecoveryPolicy(Protocol):
    def choose(self, candidates: Seq[Request]) -> Preemption:
        """The request to preempt, since there is no room for all of these to go on.

        Args:
            candidates: at least one, oldest first by (priority, arrival): whoever needs room, unless it is the oldest
                of all, and those after it. Whoever has its place in the step already is not among them.
        """
        ...


class LastInFirstOut:
    """The youngest gives way and is computed again: it has lost the least, and the oldest always gets through."""

    def choose(self, candidates: Seq[Request]) -> Preemption:
        return Preemption(candidates[-1], Road.RECOMPUTE)
