"""What becomes of victims: how many of their blocks are evicted meanwhile, and whether they are preempted again.

Blocks that a victim gave up stay cached until others need their place, the end of its table first. So a victim finds
its front again and has lost its back: as many blocks as others have grown by, or all without prefix caching. The load
decides how many, and the victims that came back tell.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

_KEPT = 32  #: returns that count
_GROUPS = 4  #: equally likely cases that stand for them
_PREEMPTIONS = 64  #: that count


class EvictionStats:
    """Of the latest preemptions."""

    def __init__(self) -> None:
        self._lost: deque[float] = deque(maxlen=_KEPT)
        self._is_repeated: deque[bool] = deque(maxlen=_PREEMPTIONS)

    def observe_preemption(self, *, is_repeated: bool) -> None:
        """A request is preempted, and has been before or has not."""
        self._is_repeated.append(is_repeated)

    @property
    def again(self) -> float:
        """What share of preemptions is followed by another one of the same request: half, until some have been seen
        (Laplace's rule of succession)."""
        return (sum(self._is_repeated) + 1) / (len(self._is_repeated) + 2)

    def observe(self, num_given_up: int, num_lost: int) -> None:
        """A request is back.

        Args:
            num_given_up: full blocks that nobody held any more when it was preempted.
            num_lost: of these, blocks that were evicted.
        """
        # Where all are gone, more would have gone too.
        self._lost.append(num_lost if num_lost < num_given_up else math.inf)

    def expect(self, num_given_up: int) -> list[int]:
        """How many blocks of those given up will be evicted: equally likely cases, ascending.

        All of them, until a victim has come back.
        """
        lost = sorted(min(count, num_given_up) for count in self._lost)
        if not lost:
            return [num_given_up]
        num_groups = min(_GROUPS, len(lost))
        bounds = [len(lost) * at // num_groups for at in range(num_groups + 1)]
        groups = [lost[start:end] for start, end in pairwise(bounds)]
        return [round(sum(group) / len(group)) for group in groups]
