"""Block tables: which blocks hold a sequence's KV, found by prefix, shared by fork, copied on write, swapped.

    logical blocks of a sequence      0    1    2    3
    block_table                     [ 7,   2,  15,   4 ]      the last one may be half full
    block_keys                      [ k0,  k1,  k2 ]          full blocks only

A sequence that was swapped out comes back with blocks that are still on their way (`Sequence.loading`). What stands
before them is computed meanwhile:

    block_table                     [ 7,   9,  11,   3,   8 ]
                                      have  to compute  loading

Owns every block table, the pool and the index of the swap tier. Knows nothing about budgets, queues or who goes first:
where room is missing it says so, and the scheduler decides what that means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.core.block_keys import extend_keys
from quire.core.block_pool import BlockPool
from quire.core.request import Loading, Sequence
from quire.core.tier_index import Entry, TierIndex
from quire.outputs import BlockTransfer, TransferReport


@dataclass(frozen=True, slots=True)
class Kept:
    """Blocks of a sequence that the swap tier holds: those from `start` to before `end` of its table."""

    start: int
    end: int


@dataclass(slots=True)
class _Transfer:
    """A save or a load under way."""

    transfer: BlockTransfer
    entry: Entry
    waiting: list[Sequence] = field(default_factory=list)  #: for a load
    is_cancelled: bool = False  #: it will not begin, unless it has


class KVCacheManager:
    """The KV blocks of one engine.

    Args:
        num_blocks: size of the pool.
        block_size: tokens a block holds.
        root: the namespace's key (`block_keys.Namespace.root`).
        enable_prefix_caching: whether `find_prefix` may find blocks of other requests. Sequences of one request find
            each other's blocks in any case, and keys are always computed.
        num_swap_slots: size of the swap tier, in blocks.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        root: bytes = b"",
        enable_prefix_caching: bool = True,
        num_swap_slots: int = 0,
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.tier = TierIndex(num_swap_slots)
        self.block_size = block_size
        self.root = root
        self.enable_prefix_caching = enable_prefix_caching
        self.num_logical_blocks = 0  #: entries of all block tables; more than used blocks by what is shared
        self.num_kv_tokens = 0  #: computed tokens of all sequences that hold blocks
        self._registered: list[int] = []  #: blocks named since `begin_step`
        self._next_op_id = 0
        self._pinned: set[int] = set()
        self._transfers: list[BlockTransfer] = []  #: saves and loads to be sent with the step that is being made
        self._under_way: dict[int, _Transfer] = {}  #: saves and loads, by op_id
        self._load_of: dict[bytes, int] = {}  #: key -> op_id of the load that brings it
        self._save_of: dict[bytes, int] = {}  #: key -> op_id of the save that takes it
        self._cancelled: list[int] = []  #: op_ids to be sent with the step that is being made

    def begin_step(self, *, write_through: bool = False) -> None:
        """Forget what the last step named.

        Args:
            write_through: save what it named, where the swap tier has room: blocks that are full are never written
                again, so that giving them up later costs nothing.
        """
        if write_through:
            for block in self._registered:
                key = self.pool.key_of(block)
                if key is not None and key not in self.tier and self.tier.num_available:
                    self._save(block, key)
        self._registered.clear()

    def save_ahead(self, seq: Sequence, num_blocks: int) -> int:
        """Save the last of `seq`'s full blocks, as many of so many as the swap tier has room for and does not have.

        Nobody keeps them there; but as long as they stay, giving them up costs nothing.

        Returns:
            How many are saved.
        """
        num_saved = 0
        for at in range(seq.num_registered - 1, -1, -1):
            if num_saved == num_blocks or not self.tier.num_available:
                break
            key = seq.block_keys[at]
            if key not in self.tier:
                self._save(seq.block_table[at], key)
                num_saved += 1
        return num_saved

    def take_transfers(self) -> list[BlockTransfer]:
        """The saves and loads that have come together since this was last asked, to be sent with a step."""
        transfers, self._transfers = self._transfers, []
        return transfers

    def take_cancelled(self) -> list[int]:
        """The saves and loads that were given up since this was last asked, to be sent with a step."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    @property
    def num_under_way(self) -> int:
        """Saves and loads that have not been reported."""
        return len(self._under_way)

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
        own = None if self.enable_prefix_caching else {b for s in seq.request.unfinished for b in s.block_table}
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
        if seq.loading is not None:
            for op_id in seq.loading.op_ids:
                self._stop_waiting(op_id, seq)
            seq.loading = None
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
                key = self.pool.key_of(block)
                if key is not None:
                    self.tier.drop(key)
                self.pool.withdraw(block)

    # -- the swap tier ---------------------------------------------------------------------------------------------

    def full_blocks(self, seq: Sequence) -> list[int]:
        """The blocks whose tokens are all computed."""
        return seq.block_table[: seq.num_computed_tokens // self.block_size]

    def filled_blocks(self, seq: Sequence) -> dict[int, bytes]:
        """The full blocks, with their keys, that hold KV or will, once what is under way is there."""
        num_full = self._count_filled(seq)
        self._extend_keys(seq, num_full)
        return dict(zip(seq.block_table[:num_full], seq.block_keys, strict=False))

    def _count_filled(self, seq: Sequence) -> int:
        end = seq.num_computed_tokens if seq.loading is None else seq.loading.end
        return end // self.block_size

    def keep(self, seqs: Iterable[Sequence], keep_from: int, given_up: set[int]) -> list[int]:
        """Have the swap tier hold the full blocks of a request's sequences until they go on, before these give them up.

        What the tier has already is held and not saved again; what it has no room for, or what somebody else goes on
        holding, is left.

        Args:
            seqs: of one request.
            keep_from: the first block, by its place in their tables.
            given_up: blocks that nobody will hold once the request has given up its own.

        Returns:
            The op_ids of what is saved.
        """
        seqs = list(seqs)
        for seq in seqs:  # before anything is saved: a save takes the slot of whatever is held by nobody
            self._hold_saved(seq, keep_from)
        save_ids: list[int] = []
        for seq in seqs:
            for block, key in list(zip(self.full_blocks(seq), seq.block_keys, strict=False))[keep_from:]:
                if key not in self.tier and block in given_up and self.tier.num_available:
                    save_ids.append(self._save(block, key))
                    self.tier.hold(key)
                    seq.kept_keys.append(key)
        return save_ids

    def _hold_saved(self, seq: Sequence, keep_from: int) -> None:
        """Have the swap tier hold those of `seq`'s full blocks that it has, and does not hold for it yet."""
        num_full = self._count_filled(seq)
        self._extend_keys(seq, num_full)
        kept = set(seq.kept_keys)
        seq.kept_keys += [key for key in seq.block_keys[keep_from:num_full] if key not in kept and self.tier.hold(key)]

    def release_kept(self, seq: Sequence) -> None:
        """Let the swap tier have the room again that it keeps for `seq`."""
        for key in seq.kept_keys:
            self.tier.release(key)
        seq.kept_keys.clear()

    def abandon_kept(self, seq: Sequence) -> None:
        """`seq` has ended: let the room go, and what nobody else keeps need not be saved any more."""
        keys = list(seq.kept_keys)
        self.release_kept(seq)
        self._cancel(self._save_of.get(key) for key in keys if not self.tier.num_holds(key))

    def find_kept(self, seq: Sequence, first: int) -> Kept | None:
        """The blocks from the `first` of its table on that the swap tier can bring: one run of them, the earliest."""
        if not seq.kept_keys:
            return None
        kept = set(seq.kept_keys)
        num_full = (len(seq.token_ids) - 1) // self.block_size  # a token is left to compute
        self._extend_keys(seq, num_full)
        is_there = [key in kept and self._is_coming(key) for key in seq.block_keys[first:num_full]]
        return _first_run(is_there, first)

    def _is_coming(self, key: bytes) -> bool:
        """Whether the tier has a key's block, or will."""
        save = self._save_of.get(key)
        return key in self.tier and (save is None or not self._under_way[save].is_cancelled)

    def begin_load(self, seq: Sequence, kept: Kept) -> list[int]:
        """Extend `seq`'s table, which ends before `kept`, by blocks to compute and blocks to load.

        The caller has checked that the pool has room.

        Returns:
            The op_ids of loads that this began; others were under way.
        """
        table = seq.block_table
        before = len(table)
        table.extend(self.pool.allocate() for _ in range(kept.start - before))
        loading = Loading(kept.start * self.block_size, kept.end * self.block_size)
        load_ids: list[int] = []
        for key in seq.block_keys[kept.start : kept.end]:
            op_id = self._load_of.get(key)
            if op_id is None:
                op_id = self._load(key)
                load_ids.append(op_id)
            under_way = self._under_way[op_id]
            under_way.waiting.append(seq)
            self.pool.acquire(under_way.transfer.dst)
            table.append(under_way.transfer.dst)
            loading.op_ids.add(op_id)
        seq.loading = loading
        self.num_logical_blocks += len(table) - before
        return load_ids

    def unsaved(self, seq: Sequence) -> Kept | None:
        """The blocks that are kept for `seq` and still on their way to the swap tier: one run of them, the earliest."""
        kept = set(seq.kept_keys)
        return _first_run([key in kept and key in self._save_of and self._is_coming(key) for key in seq.block_keys])

    def unloaded(self, seq: Sequence) -> Kept | None:
        """The blocks that `seq` waits for, from the first that is still on its way; None where they are given up."""
        loading = seq.loading
        if loading is None:
            return None
        under_way = [self._under_way[op_id] for op_id in loading.op_ids]
        coming = {each.transfer.dst for each in under_way if not each.is_cancelled}
        start, end = loading.start // self.block_size, loading.end // self.block_size
        first = next((at for at in range(start, end) if seq.block_table[at] in coming), None)
        return None if first is None else Kept(first, end)

    def cancel_saves(self, seq: Sequence, blocks: Kept) -> int:
        """Give up saving blocks of `seq`, by their places, as far as nobody else keeps them too.

        Those that have begun are saved all the same.

        Returns:
            How many are given up.
        """
        keys = seq.block_keys[blocks.start : blocks.end]
        return self._cancel(self._save_of.get(key) for key in keys if self.tier.num_holds(key) <= 1)

    def cancel_loads(self, seq: Sequence, blocks: Kept) -> int:
        """Give up loading blocks that `seq` waits for, as far as nobody else does; they will be computed.

        They stay in its table until the link says that it has not begun them.

        Returns:
            How many are given up.
        """
        places = {block: at for at, block in enumerate(seq.block_table)}
        transfers = (self._under_way[op_id] for op_id in _loading_of(seq).op_ids)
        return self._cancel(
            each.transfer.op_id
            for each in transfers
            if blocks.start <= places[each.transfer.dst] < blocks.end and len(each.waiting) == 1
        )

    def _stop_waiting(self, op_id: int, seq: Sequence) -> None:
        """What nobody waits for any more need not be loaded."""
        waiting = self._under_way[op_id].waiting
        waiting.remove(seq)
        if not waiting:
            self._cancel([op_id])

    def _cancel(self, op_ids: Iterable[int | None]) -> int:
        """Have the link leave what it has not begun. Whoever wants one of these blocks later asks for it anew."""
        num_cancelled = 0
        for op_id in op_ids:
            if op_id is None or self._under_way[op_id].is_cancelled:
                continue
            under_way = self._under_way[op_id]
            under_way.is_cancelled = True
            if under_way.transfer.kind == "load":
                _forget(self._load_of, under_way)
            self._cancelled.append(op_id)
            num_cancelled += 1
        return num_cancelled

    def end_load(self, seq: Sequence) -> None:
        """Count as computed what has been loaded. Nothing of it is under way any more."""
        assert seq.loading is not None
        assert not seq.loading.op_ids
        assert seq.num_computed_tokens == seq.loading.start
        end = seq.loading.end
        seq.loading = None
        self.num_kv_tokens += end - seq.num_computed_tokens
        seq.num_computed_tokens = end
        seq.num_registered = end // self.block_size

    def end_transfers(self, reports: Iterable[TransferReport]) -> None:
        """Take note of transfers that have ended. What was loaded can be found by its key from now on."""
        for report in reports:
            failed = set(report.failed)
            for op_id in report.op_ids:
                self._end_one(self._under_way.pop(op_id), is_cancelled=report.is_cancelled, failed=op_id in failed)

    def _end_one(self, under_way: _Transfer, *, is_cancelled: bool, failed: bool) -> None:
        transfer, entry = under_way.transfer, under_way.entry
        if transfer.kind == "save":
            _forget(self._save_of, under_way)
            self.tier.end(entry, failed=failed or is_cancelled)
            return
        # A load may follow its block's save on the link; then it brings nothing where that one did not.
        failed = failed or not entry.is_named
        self.tier.end(entry, failed=failed)
        _forget(self._load_of, under_way)
        self._end_one_load(under_way, is_lost=failed or is_cancelled)

    def _end_one_load(self, under_way: _Transfer, *, is_lost: bool) -> None:
        transfer = under_way.transfer
        for seq in under_way.waiting:
            _loading_of(seq).op_ids.discard(transfer.op_id)
        if is_lost:
            for seq in under_way.waiting:
                self._cut(seq, seq.block_table.index(transfer.dst))
        else:
            self.pool.register(transfer.dst, under_way.entry.key)
        self.pool.release(transfer.dst)

    def _cut(self, seq: Sequence, at: int) -> None:
        """Give up what was to be loaded from the block at `at` on: it will be computed."""
        loading = _loading_of(seq)
        if at * self.block_size >= loading.end:
            return
        loading.end = at * self.block_size
        dropped = seq.block_table[at:]
        del seq.block_table[at:]
        self.num_logical_blocks -= len(dropped)
        still_coming = {self._under_way[op_id].transfer.dst: op_id for op_id in loading.op_ids}
        for block in reversed(dropped):
            if (op_id := still_coming.get(block)) is not None:
                loading.op_ids.remove(op_id)
                self._stop_waiting(op_id, seq)
            self.pool.release(block)

    def _save(self, block: int, key: bytes) -> int:
        entry = self.tier.begin_save(key)
        transfer = BlockTransfer(self._new_op_id(), "save", block, entry.slot, key)
        self._transfers.append(transfer)
        self._under_way[transfer.op_id] = _Transfer(transfer, entry)
        self._save_of[key] = transfer.op_id
        return transfer.op_id

    def _load(self, key: bytes) -> int:
        entry = self.tier.begin_load(key)
        transfer = BlockTransfer(self._new_op_id(), "load", entry.slot, self.pool.allocate(), key)
        self._transfers.append(transfer)
        self._under_way[transfer.op_id] = _Transfer(transfer, entry)
        self._load_of[key] = transfer.op_id
        return transfer.op_id

    def _new_op_id(self) -> int:
        self._next_op_id += 1
        return self._next_op_id

    # -- prefixes that stay --------------------------------------------------------------------------------------------

    def pin(self, seq: Sequence) -> int:
        """Hold the full blocks of `seq` for good, so that they are never evicted. Returns how many they are."""
        blocks = self.full_blocks(seq)
        for block in set(blocks) - self._pinned:
            self.pool.acquire(block)
        self._pinned.update(blocks)
        return len(blocks)

    def count_pinned_with(self, seq: Sequence) -> int:
        """Blocks that would be pinned if those of `seq` were too."""
        return len(self._pinned.union(self.full_blocks(seq)))

    @property
    def num_pinned(self) -> int:
        return len(self._pinned)

    def _extend_keys(self, seq: Sequence, num_blocks: int) -> None:
        if len(seq.block_keys) < num_blocks:
            extend_keys(seq.block_keys, self.root, seq.request.domains, seq.token_ids, self.block_size, num_blocks)

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
        return BlockTransfer(self._new_op_id(), "copy", shared, own)

    def check_integrity(self, sequences: list[Sequence]) -> None:
        """Raise AssertionError unless the tables of these (all) sequences account for every hold and every name."""
        self.pool.check_integrity()
        holds = [0] * self.pool.num_blocks
        for block in self._pinned:
            holds[block] += 1
        self.tier.check_integrity()
        for op_id, under_way in self._under_way.items():
            if under_way.transfer.kind == "load":
                holds[under_way.transfer.dst] += 1
                assert all(op_id in _loading_of(seq).op_ids for seq in under_way.waiting)
        for seq in sequences:
            if seq.loading is not None:
                assert seq.num_computed_tokens <= seq.loading.start <= seq.loading.end
                assert seq.loading.end == len(seq.block_table) * self.block_size, f"{seq!r} loads beside its table"
                assert all(seq in self._under_way[op_id].waiting for op_id in seq.loading.op_ids)
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


def _loading_of(seq: Sequence) -> Loading:
    assert seq.loading is not None, f"{seq!r} waits for no block"
    return seq.loading


def _forget(op_of: dict[bytes, int], under_way: _Transfer) -> None:
    """Its key is not found under this transfer any more; another may have taken its place."""
    if op_of.get(under_way.entry.key) == under_way.transfer.op_id:
        del op_of[under_way.entry.key]


def _first_run(flags: list[bool], first: int = 0) -> Kept | None:
    """The first places in a row that are true, where the first flag is for place `first`."""
    if True not in flags:
        return None
    start = flags.index(True)
    end = next((at for at in range(start, len(flags)) if not flags[at]), len(flags))
    return Kept(first + start, first + end)
