"""The words between the scheduler and a recovery policy: who may be preempted, and what was decided."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.core.decisions.costs import StepShape, decoding_beside
from quire.core.decisions.eviction_stats import EvictionStats
from quire.core.request import Request

MAX_PREEMPTIONS = 8  #: of a request, whatever the policy: then it comes back to stay (see `core.scheduler`)
MAX_CANDIDATES = 8  #: the youngest, among whom a policy chooses whom to preempt


class RecoveryMode(enum.Enum):
    """How a preempted request comes back."""

    RECOMPUTE = "recompute"  #: its blocks are dropped, and its tokens computed again
    SWAP = "swap"  #: its full blocks are saved to the swap tier and loaded from it
    MIXED = "mixed"  #: its back is saved; when it resumes, its front is computed while the back loads


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request that may be preempted. Its distinct full blocks are numbered by their places in its tables."""

    request: Request
    num_tokens: int  #: computed tokens of all its sequences, shared ones once
    num_shared: int  #: full blocks at the front that others hold too: they need not be brought back
    #: For each place: how many blocks from there on would have to be saved. Others do not hold them, and the swap tier
    #: does not have them.
    to_save_from: tuple[int, ...]
    idle_from: tuple[int, ...]  #: for each place: how many blocks from there on the tier has and keeps for nobody
    gap: range = range(0)  #: places to be computed before blocks that are being loaded: no mode can save them

    @property
    def num_full_blocks(self) -> int:
        return len(self.to_save_from) - 1

    def has_room(self, keep_from: int, free_slots: int) -> bool:
        """Whether the swap tier has slots for its blocks from place `keep_from` on.

        An idle slot counts among the free ones, until its block is kept again.
        """
        return self.to_save_from[keep_from] + self.idle_from[keep_from] <= free_slots


@dataclass(frozen=True, slots=True)
class SystemState:
    """What the costs of coming back depend on beside the request itself."""

    block_size: int
    block_bytes: int
    chunk_beside: int  #: tokens of a prompt that a step computes beside the decoding
    free_slots: int  #: blocks that the swap tier can still take; 0 where there is none
    queued_bytes: int  #: waiting for the link
    beside: StepShape  #: the last step's: what recomputing is added to
    eviction_stats: EvictionStats = field(default_factory=EvictionStats)

    @property
    def decoding_beside(self) -> StepShape | None:
        """The decoding of the last step, which goes on. None where there was none."""
        return decoding_beside(self.beside)


@dataclass(frozen=True, slots=True)
class Preemption:
    victim: Request
    mode: RecoveryMode
    keep_from: int = 0  #: MIXED: the first block that is saved, by its place in the table
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds by `RecoveryMode.value`, of modes weighed


class RecoveryPolicy(ABC):
    """Decides whom to preempt and how the victim comes back; by default it keeps to what it decided."""

    @abstractmethod
    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        """The request to preempt, since there is no room for all candidates to go on, and its recovery mode.

        SWAP and MIXED are chosen only where the swap tier has room for what has to be saved (`Candidate.has_room`).

        Args:
            candidates: at least one and at most `MAX_CANDIDATES`, oldest first by (priority, arrival): the request that
                needs room, unless it is the oldest of all, and younger ones. None has its place in the step already.
            state: the moment.
        """

    def is_worth_loading(self, start: int, end: int, state: SystemState) -> bool:
        """Whether a request that comes back should still load its tokens [start, end), or rather compute them.

        Args:
            start, end: multiples of a block.
            state: now.
        """
        return True

    def is_worth_saving(self, start: int, end: int, state: SystemState) -> bool:
        """Whether a preempted request's tokens [start, end) should still be saved and loaded, or rather be computed.

        Args:
            start, end: multiples of a block; their saves are under way.
            state: now.
        """
        return True
