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

from quire.config import BlockWindow


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
    def cached(self) -> Iterable[int]:
        """The cached blocks, in the order of eviction."""
        return self._cached

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

    def hold_all(self, blocks: Sequence[int], num_outgrown: int) -> None:
        """Hold used or cached blocks, in a `WindowedBlockPool` the first `num_outgrown` without their windows."""
        for block in blocks:
            self.acquire(block)

    def release_table(self, blocks: Sequence[int], num_outgrown: int, whole_at: Sequence[int] = ()) -> None:
        """Release blocks, the last one first. In a `WindowedBlockPool` the first `num_outgrown` are outgrown, but for
        those at `whole_at`, ascending."""
        self.release_all(reversed(blocks))

    def has_room(self, num_whole: int, num_thin: int) -> bool:
        """Whether so many blocks can be allocated; blocks are thin in a `WindowedBlockPool` only."""
        return self.num_available >= num_whole + num_thin

    def count_idle(self, whole: Sequence[int], outgrown: Sequence[int]) -> int:
        """Count the available blocks that holds on these blocks would take. `outgrown`: see `WindowedBlockPool`."""
        return sum(1 for block in whole if not self.ref_counts[block])

    def has_thin(self, blocks: Iterable[int]) -> bool:
        """Whether the KV of layers with a window, or a state, is missing in any of these blocks."""
        return False

    def pop_returned(self) -> list[tuple[int, bool]]:
        """Return the blocks whose memory is to be returned: all of it (True), or that of layers with a window."""
        return []

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


class WindowedBlockPool(BlockPool):
    """A pool whose used blocks may be thin (`BlockWindow`). It has the memory of `num_blocks` whole blocks, and more
    blocks than that.

    A hold is whole, or *outgrown*: of a sequence that reads no layer with a window there any more. Where memory is
    missing, the block that has had no whole hold for the longest time becomes thin if it is used, and is evicted if it
    is cached.
    """

    def __init__(self, num_blocks: int, window: BlockWindow) -> None:
        super().__init__(window.num_ids(num_blocks))
        self.num_blocks = num_blocks
        self.thin: set[int] = set()  #: used or cached
        self.returned: list[tuple[int, bool]] = []  #: see `pop_returned`
        self._whole_holds = [0] * len(self.ref_counts)
        self._thin_memory = window.thin
        self._saving = BlockWindow.WHOLE - window.thin  #: by making a block thin
        self._memory = num_blocks * BlockWindow.WHOLE
        self._taken = 0  #: memory of all blocks; free ones keep theirs, in `_free`
        self._needed = 0  #: memory of used blocks, as if all outgrown ones were thin
        self._without_memory, self._free = self._free, []
        self._num_outgrown = 0  #: used blocks in `_cached`: whole, without whole holds

    @property
    def num_available(self) -> int:
        return (self._memory - self._needed) // BlockWindow.WHOLE

    @property
    def num_cached(self) -> int:
        return len(self._cached) - self._num_outgrown

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    def allocate(self) -> int:
        block = self._free.pop() if self._free else self._take()
        self.ref_counts[block] = self._whole_holds[block] = 1
        self._needed += BlockWindow.WHOLE
        return block

    def allocate_all(self, num_blocks: int) -> list[int]:
        return [self.allocate() for _ in range(num_blocks)]

    def allocate_thin(self, num_blocks: int) -> list[int]:
        """Return thin blocks without keys, with an outgrown hold each."""
        return [self._allocate_thin() for _ in range(num_blocks)]

    def _allocate_thin(self) -> int:
        block = self._free.pop() if self._free else self._take(is_thin=True)
        if block not in self.thin:
            self._make_thin(block)
        self.ref_counts[block] = 1
        self._needed += self._thin_memory
        return block

    def has_room(self, num_whole: int, num_thin: int) -> bool:
        return self._needed + num_whole * BlockWindow.WHOLE + num_thin * self._thin_memory <= self._memory

    def _take(self, *, is_thin: bool = False) -> int:
        memory = self._thin_memory if is_thin else BlockWindow.WHOLE
        while self._taken + memory > self._memory:
            block, _ = self._cached.popitem(last=False)
            if self.ref_counts[block]:
                self._num_outgrown -= 1
                self._make_thin(block)
                continue
            self._remove_key(block)
            if (block in self.thin) == is_thin:
                return block
            if block not in self.thin:
                self._make_thin(block)
            self._return(block)
        self._taken += memory
        block = self._without_memory.pop()
        if is_thin:
            self.thin.add(block)
        return block

    def _make_thin(self, block: int) -> None:
        self.thin.add(block)
        self._taken -= self._saving
        self.returned.append((block, False))

    def _return(self, block: int) -> None:
        """Return the memory of a thin block that is neither used nor cached."""
        self.thin.remove(block)
        self._taken -= self._thin_memory
        self._without_memory.append(block)
        self.returned.append((block, True))

    def _let_go(self, block: int) -> None:
        """Cache a block without holds, or free it. A whole one is in `_cached` as far as it was outgrown."""
        if self._keys[block] is not None:
            self._cached[block] = None
            self._cached.move_to_end(block)
        elif block in self.thin:
            self._return(block)
        else:
            self._cached.pop(block, None)
            self._free.append(block)

    def acquire(self, block: int) -> None:
        """Hold a block whole that is not thin."""
        assert block not in self.thin
        if not self._whole_holds[block]:
            del self._cached[block]
            is_used = self.ref_counts[block] > 0
            self._num_outgrown -= is_used
            self._needed += self._saving if is_used else BlockWindow.WHOLE
        self._whole_holds[block] += 1
        self.ref_counts[block] += 1

    def acquire_outgrown(self, blocks: Iterable[int]) -> None:
        """Hold used or cached blocks, thin or not, without their windows."""
        for block in blocks:
            if not self.ref_counts[block]:
                self._needed += self._thin_memory
                if block in self.thin:
                    del self._cached[block]
                else:
                    self._num_outgrown += 1
            self.ref_counts[block] += 1

    def hold_all(self, blocks: Sequence[int], num_outgrown: int) -> None:
        self.acquire_outgrown(blocks[:num_outgrown])
        super().hold_all(blocks[num_outgrown:], 0)

    def release_table(self, blocks: Sequence[int], num_outgrown: int, whole_at: Sequence[int] = ()) -> None:
        self.release_all(blocks[at] for at in reversed([*whole_at, *range(num_outgrown, len(blocks))]))
        self.release_outgrown(blocks[at] for at in range(num_outgrown - 1, -1, -1) if at not in whole_at)

    def outgrow(self, blocks: Iterable[int], *, becomes_thin: bool = False) -> None:
        """Turn one whole hold of each block into an outgrown one. After the last one it `becomes_thin` at once, or only
        where memory is missing."""
        for block in blocks:
            self._whole_holds[block] -= 1
            if not self._whole_holds[block]:
                self._needed -= self._saving
                if becomes_thin:
                    self._make_thin(block)
                else:
                    self._num_outgrown += 1
                    self._cached[block] = None

    def release_all(self, blocks: Iterable[int]) -> None:
        """Release one whole hold of each block."""
        for block in blocks:
            if self.ref_counts[block] > 1:
                self.outgrow((block,))
                self.ref_counts[block] -= 1
                continue
            assert self._whole_holds[block] == self.ref_counts[block] == 1, f"block {block} was released too often"
            self._whole_holds[block] = self.ref_counts[block] = 0
            self._needed -= BlockWindow.WHOLE
            self._let_go(block)

    def release_outgrown(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.ref_counts[block] -= 1
            assert self.ref_counts[block] >= self._whole_holds[block], f"block {block} was released too often"
            if not self.ref_counts[block]:
                self._needed -= self._thin_memory
                self._num_outgrown -= block not in self.thin
                self._let_go(block)

    def register_all(self, blocks: Sequence[int], keys: Sequence[bytes]) -> list[int]:
        for block, key in zip(blocks, keys, strict=True):
            known = self._block_of_key.get(key)
            if known in self.thin and block not in self.thin and known is not None:
                self.invalidate(known)  # the whole block takes its key
        return super().register_all(blocks, keys)

    def invalidate(self, block: int) -> None:
        if self._keys[block] is not None:
            self._remove_key(block)
            if not self.ref_counts[block]:
                del self._cached[block]
                self._let_go(block)

    def drop_cached(self) -> int:
        cached = [block for block in self._cached if not self.ref_counts[block]]
        for block in cached:
            self.invalidate(block)
        return len(cached)

    def has_thin(self, blocks: Iterable[int]) -> bool:
        return not self.thin.isdisjoint(blocks)

    def pop_returned(self) -> list[tuple[int, bool]]:
        returned, self.returned = self.returned, []
        return returned

    def count_idle(self, whole: Sequence[int], outgrown: Sequence[int]) -> int:
        needed = sum(
            self._saving if self.ref_counts[block] else BlockWindow.WHOLE
            for block in whole
            if not self._whole_holds[block]
        )
        needed += sum(self._thin_memory for block in outgrown if not self.ref_counts[block])
        return -(-needed // BlockWindow.WHOLE)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is in exactly one state, and its memory is counted."""
        ids = range(len(self.ref_counts))
        used = {block for block in ids if self.ref_counts[block]}
        outgrown = {block for block in used if not self._whole_holds[block]}
        cached = {block for block in self._cached if not self.ref_counts[block]}
        assert sorted([*self._free, *self._without_memory, *cached, *used]) == list(ids), "a block is lost"
        assert set(self._cached) == cached | (outgrown - self.thin)
        assert len(outgrown - self.thin) == self._num_outgrown
        assert self.thin <= outgrown | cached
        assert all(0 <= self._whole_holds[block] <= self.ref_counts[block] for block in ids)
        assert {b for b in ids if self._keys[b] is not None} == set(self._block_of_key.values())
        assert all(self._keys[block] == key for key, block in self._block_of_key.items()), "a key points elsewhere"
        assert all(self._keys[block] is not None for block in cached), "a cached block has no key"
        assert self._needed == len(used) * BlockWindow.WHOLE - len(outgrown) * self._saving
        num_with_memory = len(self._free) + len(cached) + len(used)
        assert self._taken == num_with_memory * BlockWindow.WHOLE - len(self.thin) * self._saving <= self._memory
