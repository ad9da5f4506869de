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
    def choose(self, running: Seq[Request]) -> Preemption | None:
        """The request to preempt so that an older one can go on.

        Args:
            running: oldest first by (priority, arrival). The first one must never be chosen.

        Returns:
            None where there is no one to preempt.
        """
        ...


class LastInFirstOut:
    """The youngest gives way and is computed again: it has lost the least, and the oldest always gets through."""

    def choose(self, running: Seq[Request]) -> Preemption | None:
        return Preemption(running[-1], Road.RECOMPUTE) if len(running) > 1 else None
