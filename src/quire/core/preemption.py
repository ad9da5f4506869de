"""The words between the scheduler and a recovery policy: who may be preempted, and what was decided."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quire.core.costs import StepShape
from quire.core.survival import Survival
from quire.request import Request

MAX_PREEMPTIONS = 8  #: of a request, whatever the policy: then it comes back to stay (see `core.scheduler`)


class Road(enum.Enum):
    """How a preempted request comes back."""

    RECOMPUTE = "recompute"  #: its blocks are dropped, and its tokens computed again
    SWAP = "swap"  #: its full blocks are saved to the swap tier and loaded from it
    MIXED = "mixed"  #: its back is saved; when it resumes, its front is computed while the back loads


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that may be preempted."""

    request: Request
    num_tokens: int  #: computed tokens that would have to come back, of all its sequences, shared ones once
    num_full_blocks: int  #: distinct full blocks of them: what swap moves at most
    num_freed: int  #: blocks that nobody would hold any more
    num_to_save: int  #: full blocks that others do not hold and the swap tier does not have yet
    num_shared: int  #: full blocks at the front that somebody else holds too: they will be found, not brought back


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the costs of coming back depend on beside the request itself."""

    block_size: int
    block_bytes: int
    chunk: int  #: max_num_batched_tokens
    free_slots: int  #: blocks that the swap tier can still take; 0 where there is none
    queued_bytes: int  #: on the link
    num_running: int
    beside: StepShape  #: the last step's: what recomputing is added to
    now_step: int  #: step_id
    survival: Survival = field(default_factory=Survival)  #: of blocks that are given up

    @property
    def decoding_beside(self) -> StepShape | None:
        """What of the last step goes on: its decoding. None where there was nothing."""
        return self.beside.decoding if self.beside.num_tokens > 0 else None


@dataclass(frozen=True, slots=True)
class Preemption:
    victim: Request
    road: Road
    keep_from: int = 0  #: MIXED: the first block that is saved, by its place in the table
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds by `Road.value`, as far as they were weighed
    probes: Road | None = None  #: a small part went another way than the rest, to tell about this road
    is_sample: bool = False  #: all of it went another way than it should have, to see what would have been


def prediction_error(predicted: dict[str, float], road: Road, actual: float) -> float | None:
    """|predicted - actual| / actual of the road that was taken; None where nothing was predicted, or nothing spent."""
    seconds = predicted.get(road.value)
    return abs(seconds - actual) / actual if seconds is not None and actual > 0.0 else None


def passed_over(predicted: dict[str, float], road: Road) -> float | None:
    """Seconds that the best of the roads which were not taken was predicted to cost; None where there was none."""
    return min((seconds for name, seconds in predicted.items() if name != road.value), default=None)


class RecoveryPolicy(Protocol):
    def choose(self, candidates: Sequence[Candidate], around: Surroundings) -> Preemption:
        """The request to preempt, since there is no room for all of these to go on, and its road back.

        SWAP and MIXED are chosen only where the swap tier has room for what has to be saved.

        Args:
            candidates: at least one, oldest first by (priority, arrival): whoever needs room, unless it is the oldest
                of all, and those after it. Whoever has its place in the step already is not among them.
            around: the moment.
        """
        ...
