"""Merge the changes of all ranks' block stores, each of which holds its rank's slices of the blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from quire.outputs import StoreChanges

_PATIENCE_S = 1.0  # for a rank's slice that another engine is writing


class MergedStores:
    """Merges stores: a block counts as stored while every rank has its slice. The first rank claims; a claim is also
    granted if another rank lacks the slice, which alone is then written."""

    def __init__(self, num_ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = (1 << num_ranks) - 1
        self._ranks_with: dict[bytes, int] = {}  #: one bit per rank, by key
        self._claimed: set[bytes] = set()
        self._lacking: dict[bytes, float] = {}  #: deadlines of claimed keys that only some ranks have
        self._clock = clock

    def update_claims(self, claimed: Iterable[bytes], dropped: Iterable[bytes]) -> None:
        """Record a step's new and dropped claims."""
        for key in dropped:
            self._end_claim(key)
        self._claimed.update(claimed)

    def merge(self, changes: Sequence[StoreChanges | None]) -> StoreChanges | None:
        """Merge the stores' changes since the last call, one entry per rank."""
        if not self._lacking and not any(changes):
            return None
        before: dict[bytes, bool] = {}
        deleted: dict[bytes, None] = {}
        first_added: set[bytes] = set()
        for rank, change in enumerate(changes):
            if change is None:
                continue
            for key in (*change.deleted, *change.removed):
                self._set(key, self._ranks_with.get(key, 0) & ~(1 << rank), before)
            for key in change.added:
                self._set(key, self._ranks_with.get(key, 0) | 1 << rank, before)
            deleted.update(dict.fromkeys(change.deleted))
            if rank == 0:
                first_added.update(change.added)
        merged = StoreChanges(deleted=list(deleted))
        if changes[0] is not None:
            merged.stored_share = changes[0].stored_share
        for key, was_stored in before.items():
            is_stored = key in self._ranks_with and self._ranks_with[key] == self._all
            if is_stored and (not was_stored or key in deleted or key in first_added):
                merged.added.append(key)
            elif was_stored and not is_stored and key not in deleted:
                merged.removed.append(key)
        self._answer_claims(changes[0], merged, first_added)
        return merged

    def _set(self, key: bytes, ranks: int, before: dict[bytes, bool]) -> None:
        before.setdefault(key, self._ranks_with.get(key) == self._all)
        if ranks:
            self._ranks_with[key] = ranks
        else:
            self._ranks_with.pop(key, None)

    def _answer_claims(self, first: StoreChanges | None, merged: StoreChanges, first_added: set[bytes]) -> None:
        if first is not None:
            merged.granted, merged.expired = list(first.granted), list(first.expired)
        for key in (*merged.granted, *merged.expired, *merged.added):
            self._end_claim(key)
        now = self._clock()
        for key in first_added & self._claimed:
            self._lacking.setdefault(key, now + _PATIENCE_S)
        for key in [key for key, until in self._lacking.items() if now >= until]:
            merged.granted.append(key)
            self._end_claim(key)

    def _end_claim(self, key: bytes) -> None:
        self._claimed.discard(key)
        self._lacking.pop(key, None)
