"""The words between the scheduler and a recovery policy: who may be preempted, and what was decided."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quire.core.costs.interface import StepShape
from quire.core.recovery.eviction_stats import EvictionStats
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
    """A request that may be preempted."""

    request: Request
    num_tokens: int  #: computed tokens that would have to come back, of all its sequences, shared ones once
    num_freed: int  #: blocks that nobody would hold any more
    num_shared: int  #: full blocks at the front that somebody else holds too: they will be found, not brought back
    #: By place, 0 to `num_full_blocks`: of the distinct full blocks from there on, those that would have to be saved,
    #: since others do not hold them and the swap tier does not have them; and those that the tier has and nobody keeps.
    to_save_from: tuple[int, ...]
    idle_from: tuple[int, ...]
    gap: range = range(0)  #: places that it is still computing before blocks that it loads: no mode can save those

    @property
    def num_full_blocks(self) -> int:
        """What swap moves at most."""
        return len(self.to_save_from) - 1

    @property
    def num_to_save(self) -> int:
        return self.to_save_from[0]

    def has_room(self, keep_from: int, free_slots: int) -> bool:
        """Whether so many slots suffice for keeping its blocks from a place on.

        Those that the tier has and nobody keeps are among the free slots, and will be so no longer.
        """
        return self.to_save_from[keep_from] + self.idle_from[keep_from] <= free_slots


@dataclass(frozen=True, slots=True)
class SystemState:
    """What the costs of coming back depend on beside the request itself."""

    block_size: int
    block_bytes: int
    chunk: int  #: max_num_batched_tokens
    free_slots: int  #: blocks that the swap tier can still take; 0 where there is none
    queued_bytes: int  #: on the link
    beside: StepShape  #: the last step's: what recomputing is added to
    now_step: int  #: step_id
    eviction_stats: EvictionStats = field(default_factory=EvictionStats)  #: of blocks that are given up

    @property
    def decoding_beside(self) -> StepShape | None:
        """What of the last step goes on: its decoding. None where there was nothing."""
        return self.beside.decoding if self.beside.num_tokens > 0 else None

    @property
    def chunk_beside(self) -> int:
        """How many tokens a step can compute beside what goes on: at least one."""
        beside = self.decoding_beside
        return max(1, self.chunk - (beside.num_tokens if beside is not None else 0))


@dataclass(frozen=True, slots=True)
class Preemption:
    victim: Request
    mode: RecoveryMode
    keep_from: int = 0  #: MIXED: the first block that is saved, by its place in the table
    predicted: dict[str, float] = field(
        default_factory=dict
    )  #: seconds by `RecoveryMode.value`, as far as they were weighed
    probes: RecoveryMode | None = None  #: a small part went another way than the rest, to tell about this mode
    is_sample: bool = False  #: all of it went another way than it should have, to see what would have been


def prediction_error(predicted: dict[str, float], mode: RecoveryMode, actual: float) -> float | None:
    """|predicted - actual| / actual of the mode that was taken; None where nothing was predicted, or nothing spent."""
    seconds = predicted.get(mode.value)
    return abs(seconds - actual) / actual if seconds is not None and actual > 0.0 else None


class LinkSampler(Protocol):
    """Has some blocks saved now and then, only to see how fast the idle link is."""

    def sample_size(self, block_bytes: int) -> int:
        """How many should be saved now: mostly none."""
        ...

    def note_sample(self, num_bytes: int) -> None:
        """So many are on their way."""
        ...


class RecoveryPolicy(ABC):
    """Decides whom to preempt. What it need not do is done here: it keeps to what it decided, and learns nothing.

    Attributes:
        prober: says when to look at the idle link; None where nobody needs to know.
    """

    prober: LinkSampler | None = None

    @abstractmethod
    def choose(self, candidates: Sequence[Candidate], state: SystemState) -> Preemption:
        """The request to preempt, since there is no room for all of these to go on, and its mode back.

        SWAP and MIXED are chosen only where the swap tier has room for what has to be saved (`Candidate.has_room`).

        Args:
            candidates: at least one and at most `MAX_CANDIDATES`, oldest first by (priority, arrival): of whoever needs
                room, unless it is the oldest of all, and those after it, the youngest. Whoever has its place in the
                step already is not among them.
            state: the moment.
        """

    def is_worth_loading(self, start: int, end: int, state: SystemState) -> bool:
        """Whether a request that comes back should still have its tokens [start, end) loaded, or rather compute them.

        Args:
            start, end: multiples of a block.
            state: now.
        """
        return True

    def is_worth_saving(self, start: int, end: int, state: SystemState) -> bool:
        """Whether tokens [start, end) of a request that was preempted, which are on their way to the swap tier, should
        still be saved and loaded, or rather computed.

        Args:
            start, end: multiples of a block.
            state: now.
        """
        return True

    def note_actual(self, request_id: str, seconds: float, *, fell_back: bool = False) -> None:  # noqa: B027
        """The request is back where it stood, and its last preemption cost so many seconds of link and steps.

        Args:
            fell_back: not, or not all of it, by the mode that was chosen, since swapping was not worth it any more.
        """
