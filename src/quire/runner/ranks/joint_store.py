"""What is on disk, where every rank keeps its slices of blocks in a store of its own: what all of them have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from quire.outputs import StoreChanges

_PATIENCE_S = 1.0  # with ranks that lack a block which another engine is just writing


class JointStore:
    """Joins the changes of all ranks' stores. A block is there while every rank has its slice.

    Claims are the first rank's. Where its store has what is claimed and another lacks its slice, the claim is granted
    after a moment: whoever asked computes the block, and the store that has it writes nothing.

    Args:
        num_ranks: how many there are.
        clock: seconds, monotonic.
    """

    def __init__(self, num_ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = (1 << num_ranks) - 1
        self._ranks_with: dict[bytes, int] = {}  #: by key, a bit for each rank
        self._claimed: set[bytes] = set()
        self._lacking: dict[bytes, float] = {}  #: claimed keys that the first rank has, and until when to wait
        self._clock = clock

    def note_claims(self, claimed: Iterable[bytes], dropped: Iterable[bytes]) -> None:
        """A step asks for claims, and gives some up."""
        for key in dropped:
            self._end_claim(key)
        self._claimed.update(claimed)

    def join(self, changes: Sequence[StoreChanges | None]) -> StoreChanges | None:
        """What has changed for all, given what each rank's store has told since the last call, rank by rank."""
        if not self._lacking and not any(changes):
            return None
        before: dict[bytes, bool] = {}
        deleted: dict[bytes, None] = {}
        told: set[bytes] = set()
        for rank, change in enumerate(changes):
            if change is None:
                continue
            for key in (*change.deleted, *change.removed):
                self._set(key, self._ranks_with.get(key, 0) & ~(1 << rank), before)
            for key in change.added:
                self._set(key, self._ranks_with.get(key, 0) | 1 << rank, before)
            deleted.update(dict.fromkeys(change.deleted))
            if rank == 0:
                told.update(change.added)
        joint = StoreChanges(deleted=list(deleted))
        for key, was_there in before.items():
            is_there = key in self._ranks_with and self._ranks_with[key] == self._all
            if is_there and (not was_there or key in deleted or key in told):
                joint.added.append(key)
            elif was_there and not is_there and key not in deleted:
                joint.removed.append(key)
        self._answer_claims(changes[0], joint, told)
        return joint

    def _set(self, key: bytes, ranks: int, before: dict[bytes, bool]) -> None:
        before.setdefault(key, self._ranks_with.get(key) == self._all)
        if ranks:
            self._ranks_with[key] = ranks
        else:
            self._ranks_with.pop(key, None)

    def _answer_claims(self, first: StoreChanges | None, joint: StoreChanges, told: set[bytes]) -> None:
        if first is not None:
            joint.granted, joint.expired = list(first.granted), list(first.expired)
        for key in (*joint.granted, *joint.expired, *joint.added):
            self._end_claim(key)
        now = self._clock()
        for key in told & self._claimed:
            self._lacking.setdefault(key, now + _PATIENCE_S)
        for key in [key for key, until in self._lacking.items() if now >= until]:
            joint.granted.append(key)
            self._end_claim(key)

    def _end_claim(self, key: bytes) -> None:
        self._claimed.discard(key)
        self._lacking.pop(key, None)
