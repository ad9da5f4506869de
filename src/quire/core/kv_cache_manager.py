"""Block tables: which blocks hold a sequence's KV, found by prefix, shared by fork, copied on write.

    logical blocks of a sequence      0    1    2    3
    block_table                     [ 7,   2,  15,   4 ]      the last one may be half full
    block_keys                      [ k0,  k1,  k2 ]          full blocks only

Owns every block table and the pool. Knows nothing about budgets, queues or who goes first: where room is missing it
says so, and the scheduler decides what that means.
"""

from __future__ import annotations

from quire.core.block_keys import PUBLIC, DomainSpans, extend_keys
from quire.core.block_pool import BlockPool
from quire.outputs import BlockTransfer
from quire.request import Sequence

_PUBLIC_ONLY: DomainSpans = ((0, PUBLIC),)


class KVCacheManager:
    """The KV blocks of one engine.

    Args:
        num_blocks: size of the pool.
        block_size: tokens a block holds.
        root: the namespace's key (`block_keys.Namespace.root`).
        enable_prefix_caching: whether `find_prefix` may find blocks of other requests. Sequences of one request find
            each other's blocks in any case, and keys are always computed.
    """

    def __init__(self, num_blocks: int, block_size: int, root: bytes = b"", enable_prefix_caching: bool = True) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.root = root
        self.enable_prefix_caching = enable_prefix_caching
        self.num_logical_blocks = 0  #: entries of all block tables; more than used blocks by what is shared
        self.num_kv_tokens = 0  #: computed tokens of all sequences that hold blocks
        self._registered: list[int] = []  #: blocks named since `begin_step`
        self._next_op_id = 0
        self._pinned: set[int] = set()

    def begin_step(self) -> list[BlockTransfer]:
        """Forget what the last step named. Returns copies that forks left to make first: none, since they share."""
        self._registered.clear()
        return []

    def fail_step(self) -> None:
        """Withdraw every name given since `begin_step`: the step that was to fill those blocks did not happen."""
        for block in self._registered:
            self.pool.withdraw(block)
        self._registered.clear()

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find_prefix(self, seq: Sequence, limit: int | None = None) -> list[int]:
        """The blocks, from the first on, that hold the KV of `seq`'s first tokens already.

        At least one token is left to compute, since a forward pass over none gives no logits; `limit` leaves more.
        """
        tokens = seq.token_ids
        last = len(tokens) - 1 if limit is None else min(limit, len(tokens) - 1)
        num_full = last // self.block_size
        self._extend_keys(seq, num_full)
        own = None if self.enable_prefix_caching else {b for s in seq.request.live for b in s.block_table}
        found: list[int] = []
        for key in seq.block_keys[:num_full]:
            block = self.pool.find(key)
            if block is None or (own is not None and block not in own):
                break
            found.append(block)
        return found

    def count_new_blocks(self, seq: Sequence, num_tokens: int) -> int:
        """Blocks to allocate so that `seq` can compute its tokens up to `num_tokens`, copies on write counted."""
        missing = -(-num_tokens // self.block_size) - len(seq.block_table)
        return missing + self._writes_shared_block(seq)

    def adopt_prefix(self, seq: Sequence, blocks: list[int]) -> None:
        """Begin `seq`'s empty table with blocks that `find_prefix` found."""
        assert not seq.block_table, "a prefix is adopted by sequences without blocks"
        for block in blocks:
            self.pool.acquire(block)
        seq.block_table.extend(blocks)
        seq.num_registered = len(blocks)
        seq.num_computed_tokens = len(blocks) * self.block_size
        self.num_logical_blocks += len(blocks)
        self.num_kv_tokens += seq.num_computed_tokens

    def append_slots(self, seq: Sequence, num_new_tokens: int) -> tuple[list[int], BlockTransfer | None] | None:
        """Make room for the KV of `seq`'s next tokens and count them as computed.

        Full blocks get their names at once: whoever comes later in the same step may share them, since within a layer
        all writes come before all reads.

        Returns:
            The blocks appended, and the copy to make first where the last block was shared (copy-on-write: its new
            place is at `num_computed_tokens // block_size` of the table); or None, with nothing changed, where the
            pool has no room.
        """
        computed = seq.num_computed_tokens
        after = computed + num_new_tokens
        table = seq.block_table
        pool = self.pool
        missing = -(-after // self.block_size) - len(table)
        copies = self._writes_shared_block(seq)
        if missing <= 0 and not copies:
            new_blocks: list[int] = []
            transfer = None
        else:
            if pool.num_available < missing + copies:
                return None
            transfer = self._copy_on_write(seq) if copies else None
            new_blocks = [pool.allocate() for _ in range(missing)]
            table.extend(new_blocks)
            self.num_logical_blocks += len(new_blocks)
        seq.num_computed_tokens = after
        self.num_kv_tokens += num_new_tokens
        if after // self.block_size > seq.num_registered:
            self._register_full_blocks(seq, after // self.block_size)
        return new_blocks, transfer

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child`, whose tokens begin with `parent`'s computed ones, hold all of `parent`'s blocks too."""
        assert not child.block_table
        for block in parent.block_table:
            self.pool.acquire(block)
        child.block_table = list(parent.block_table)
        child.block_keys = list(parent.block_keys)
        child.num_registered = parent.num_registered
        child.num_computed_tokens = parent.num_computed_tokens
        self.num_logical_blocks += len(child.block_table)
        self.num_kv_tokens += child.num_computed_tokens

    def free(self, seq: Sequence) -> int:
        """Give up all of `seq`'s blocks; again is harmless. Tokens and keys stay. Returns blocks made available."""
        before = self.pool.num_available
        for block in reversed(seq.block_table):
            self.pool.release(block)
        self.num_logical_blocks -= len(seq.block_table)
        self.num_kv_tokens -= seq.num_computed_tokens
        seq.block_table = []
        seq.num_registered = 0
        seq.num_computed_tokens = 0
        return self.pool.num_available - before

    def distrust(self, seq: Sequence) -> None:
        """Withdraw the names of `seq`'s blocks: what came of them was not numbers. (Pinned ones were.)"""
        for block in seq.block_table:
            if block not in self._pinned:
                self.pool.withdraw(block)

    def pin(self, seq: Sequence) -> int:
        """Hold the full blocks of `seq` for good, so that they are never evicted. Returns how many they are."""
        blocks = self._full_blocks(seq)
        for block in set(blocks) - self._pinned:
            self.pool.acquire(block)
        self._pinned.update(blocks)
        return len(blocks)

    def count_pinned_with(self, seq: Sequence) -> int:
        """Blocks that would be pinned if those of `seq` were too."""
        return len(self._pinned.union(self._full_blocks(seq)))

    def _full_blocks(self, seq: Sequence) -> list[int]:
        return seq.block_table[: seq.num_computed_tokens // self.block_size]

    @property
    def num_pinned(self) -> int:
        return len(self._pinned)

    def _extend_keys(self, seq: Sequence, num_blocks: int) -> None:
        if len(seq.block_keys) < num_blocks:
            spans = seq.request.domains or _PUBLIC_ONLY
            extend_keys(seq.block_keys, self.root, spans, seq.token_ids, self.block_size, num_blocks)

    def _register_full_blocks(self, seq: Sequence, num_full: int) -> None:
        self._extend_keys(seq, num_full)
        for i in range(seq.num_registered, num_full):
            if self.pool.register(seq.block_table[i], seq.block_keys[i]):
                self._registered.append(seq.block_table[i])
        seq.num_registered = num_full

    def _writes_shared_block(self, seq: Sequence) -> bool:
        """Whether the next token's slot is in a block that others hold too."""
        at = seq.num_computed_tokens // self.block_size
        return at < len(seq.block_table) and self.pool.ref_counts[seq.block_table[at]] > 1

    def _copy_on_write(self, seq: Sequence) -> BlockTransfer:
        at = seq.num_computed_tokens // self.block_size
        shared = seq.block_table[at]
        own = self.pool.allocate()
        self.pool.release(shared)
        seq.block_table[at] = own
        self._next_op_id += 1
        return BlockTransfer(self._next_op_id, "copy", shared, own)

    def check_integrity(self, sequences: list[Sequence]) -> None:
        """Raise AssertionError unless the tables of these (all) sequences account for every hold and every name."""
        self.pool.check_integrity()
        holds = [0] * self.pool.num_blocks
        for block in self._pinned:
            holds[block] += 1
        for seq in sequences:
            for block in seq.block_table:
                holds[block] += 1
            num_blocks = len(seq.block_table)
            assert seq.num_computed_tokens <= num_blocks * self.block_size, f"{seq!r} has tokens without slots"
            assert num_blocks <= self.blocks_for(len(seq.token_ids)), f"{seq!r} holds more blocks than it needs"
            at = seq.num_computed_tokens // self.block_size
            assert all(self.pool.ref_counts[b] > 0 for b in seq.block_table[: at + 1])
        assert holds == self.pool.ref_counts, "reference counts and block tables disagree"
        assert self.num_logical_blocks == sum(len(seq.block_table) for seq in sequences)
        assert self.num_kv_tokens == sum(seq.num_computed_tokens for seq in sequences)
