"""Estimate the prefixes whose KV a replica holds, by the keys sent there; the least recently used go, tails first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Residency:
    """An LRU set of block keys, with the capacity of the replica's pool in blocks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def count_prefix(self, keys: Sequence[bytes]) -> int:
        """The number of a prompt's leading blocks that are probably there."""
        known = self._keys
        for count, key in enumerate(keys):
            if key not in known:
                return count
        return len(keys)

    def store(self, keys: Sequence[bytes]) -> None:
        """Record the blocks of a prompt, in order."""
        known = self._keys
        for key in reversed(keys):
            known[key] = None
            known.move_to_end(key)
        while len(known) > self.capacity:
            known.popitem(last=False)

    def clear(self) -> None:
        """Drop all keys, since another stage of the model computes other KV."""
        self._keys.clear()
