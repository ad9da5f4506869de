"""The device's blocks: free, cached or used.

A block is in exactly one of three states:

    free     not held, without a key
    cached   not held, found by its key until it is evicted, oldest first
    used     held `ref_counts[block]` times

Every operation is O(1).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """`num_blocks` blocks, from 0. Callers release a table's last block first: a prefix is evicted after its tail."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks
        self._block_of_key: dict[bytes, int] = {}
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free) - len(self._cached)

    def allocate(self) -> int:
        """Return a free block, held once; evicts a cached one if need be. The caller has checked `num_available`."""
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._remove_key(block)
        self.ref_counts[block] = 1
        return block

    def allocate_all(self, num_blocks: int) -> list[int]:
        if num_blocks == 1:
            return [self.allocate()]
        num_free = min(num_blocks, len(self._free))
        blocks = self._free[: -num_free - 1 : -1]
        del self._free[len(self._free) - num_free :]
        for block in blocks:
            self.ref_counts[block] = 1
        blocks += [self.allocate() for _ in range(num_blocks - num_free)]
        return blocks

    def acquire(self, block: int) -> None:
        """Hold a used or cached block once more."""
        if self.ref_counts[block] == 0:
            del self._cached[block]
        self.ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Release one hold. After the last one the block is cached if it has a key, else free."""
        self.release_all((block,))

    def release_all(self, blocks: Iterable[int]) -> None:
        ref_counts, keys, free, cached = self.ref_counts, self._keys, self._free, self._cached
        for block in blocks:
            count = ref_counts[block] - 1
            assert count >= 0, f"block {block} was released too often"
            ref_counts[block] = count
            if count == 0:
                if keys[block] is None:
                    free.append(block)
                else:
                    cached[block] = None

    def touch(self, blocks: Iterable[int]) -> None:
        """Move cached blocks to the end of the eviction order: a request is about to hold them."""
        for block in blocks:
            self._cached.move_to_end(block)

    def find(self, key: bytes) -> int | None:
        return self._block_of_key.get(key)

    def key_of(self, block: int) -> bytes | None:
        return self._keys[block]

    def register(self, block: int, key: bytes) -> bool:
        """Give a used block a key. False if another block has this key: this one stays without."""
        return bool(self.register_all((block,), (key,)))

    def register_all(self, blocks: Sequence[int], keys: Sequence[bytes]) -> list[int]:
        """Register several blocks. Returns those that got their keys."""
        known, known_keys = self._block_of_key, self._keys
        registered = []
        for block, key in zip(blocks, keys, strict=True):
            if key not in known and known_keys[block] is None:
                known_keys[block] = key
                known[key] = block
                registered.append(block)
        return registered

    def invalidate(self, block: int) -> None:
        """Remove a block's key, since its content is invalid."""
        if self._keys[block] is not None:
            self._remove_key(block)
            if self.ref_counts[block] == 0:
                del self._cached[block]
                self._free.append(block)

    def drop_cached(self) -> int:
        """Free every cached block. Returns their number."""
        cached = list(self._cached)
        for block in cached:
            self.invalidate(block)
        return len(cached)

    def _remove_key(self, block: int) -> None:
        key = self._keys[block]
        assert key is not None
        del self._block_of_key[key]
        self._keys[block] = None

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is in exactly one state and every key points back."""
        free, cached = set(self._free), set(self._cached)
        used = {block for block, count in enumerate(self.ref_counts) if count > 0}
        assert len(free) == len(self._free), "a block is free twice"
        assert len(free | cached | used) == self.num_blocks, "a block is lost"
        assert len(free) + len(cached) + len(used) == self.num_blocks, "a block is in two states"
        assert min(self.ref_counts) >= 0, "a reference count is negative"
        assert {b for b, key in enumerate(self._keys) if key is not None} == set(self._block_of_key.values())
        assert all(self._keys[block] == key for key, block in self._block_of_key.items()), "a key points elsewhere"
        assert all(self._keys[block] is not None for block in cached), "a cached block has no key"
        assert all(self._keys[block] is None for block in free), "a free block has a key"
