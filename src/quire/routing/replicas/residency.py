"""Which prefixes a replica is believed to hold KV of.

A router cannot ask a replica about every request. It remembers what it sent there, as far as the replica's pool can
hold it, least recent out first, which is what the pool does too. Where replicas tell of blocks that they stored and
evicted, that corrects the memory. It may be wrong: then a request computes what it was expected to find.

Keys are kept from the least to the most recent. A prefix stands behind its own tail there, and outlives it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class Residency:
    """Args:
    capacity: keys that are remembered: the blocks of the replica's pool.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def count_prefix(self, keys: Sequence[bytes]) -> int:
        """How many of a prompt's blocks, from the first on, are believed to be there."""
        known = self._keys
        for count, key in enumerate(keys):
            if key not in known:
                return count
        return len(keys)

    def store(self, keys: Sequence[bytes]) -> None:
        """These blocks of one prompt, in its order, are there now, or will be before a later request needs them."""
        known = self._keys
        for key in reversed(keys):
            known[key] = None
            known.move_to_end(key)
        while len(known) > self.capacity:
            known.popitem(last=False)

    def evict(self, keys: Iterable[bytes]) -> None:
        """These blocks are gone; harmless for those that were not known."""
        for key in keys:
            self._keys.pop(key, None)

    def clear(self) -> None:
        """Nothing is left: another stage of the model computes other KV."""
        self._keys.clear()
