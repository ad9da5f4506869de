"""Blocks beyond the device, in the swap tier and on disk: what is saved, what comes back, and who waits for it.

A save or a load is decided here, sent with a step, and under way until the transfer worker reports it. Three rules keep
a transfer from doing harm:

- A block that is being loaded is held by the load itself, whatever becomes of the requests that wait for it.
- A load that follows the save of its block fails where that save fails.
- What was cancelled stays under way until its report says that it has not begun.

A load may begin before anybody waits for it (`load_ahead`). It makes way for those that somebody waits for.

Owns the index of the swap tier and `Sequence.swapped_keys`; reaches block tables through `kv_cache_manager`. What is on
disk, others decide too (`disk_tier`): here it is a set of keys, and a load from there may fail at any time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from quire.core.decisions.costs import TIERS
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Loading, Sequence
from quire.core.tier_index import Entry, TierIndex
from quire.outputs import BlockTransfer, TransferReport


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Blocks of a sequence that are beyond the device: those from `start` to before `end` of its table."""

    start: int
    end: int


@dataclass(slots=True)
class _Transfer:
    """A save or a load under way."""

    transfer: BlockTransfer
    key: bytes
    entry: Entry | None  #: of the swap tier; None for the disk
    waiting: list[Sequence] = field(default_factory=list)  #: for a load
    is_cancelled: bool = False  #: it will not begin, unless it has
    is_deleted: bool = False  #: its key was, meanwhile: nobody finds what it brings


class SwapManager:
    """The tiers of one engine beside the device.

    Args:
        kv: block tables and pool.
        num_slots: size of the swap tier, in blocks; 0 is no tier.

    Attributes:
        on_disk: keys of blocks in the disk tier.
    """

    def __init__(self, kv: KVCacheManager, num_slots: int = 0) -> None:
        self.kv = kv
        self.tier = TierIndex(num_slots)
        self.on_disk: set[bytes] = set()
        self._transfers: list[BlockTransfer] = []  #: saves and loads to be sent with the step that is being made
        self._cancelled: list[int] = []  #: op_ids to be sent with the step that is being made
        self._under_way: dict[int, _Transfer] = {}  #: by op_id
        self._num_queued: dict[str, int] = {}  #: by tier, without those that were cancelled
        self._ahead: dict[str, set[int]] = {tier: set() for tier in TIERS}  #: op_ids of loads that nobody waits for yet
        self._load_of: dict[bytes, int] = {}  #: key -> op_id of the load that brings it
        self._save_of: dict[bytes, int] = {}  #: key -> op_id of the save that takes it to the swap tier
        self._disk_save_of: dict[bytes, int] = {}  #: key -> op_id of the save that takes it to disk

    @property
    def num_under_way(self) -> int:
        """Saves and loads that have not been reported."""
        return len(self._under_way)

    def take_transfers(self) -> list[BlockTransfer]:
        """The saves and loads decided since the last call, to be sent with a step."""
        transfers, self._transfers = self._transfers, []
        return transfers

    def take_cancelled(self) -> list[int]:
        """The op_ids cancelled since the last call, to be sent with a step."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    # -- out ---------------------------------------------------------------------------------------------------------

    def swap_out(self, seqs: Iterable[Sequence], keep_from: int, given_up: set[int]) -> list[int]:
        """Have the swap tier hold a request's full blocks until it goes on, before its sequences give them up.

        A block that the tier has is held and not saved again, and so is one on disk left there. A block that the tier
        has no room for, or that another request goes on holding, is left.

        Args:
            seqs: of one request.
            keep_from: the first block, by its place in their tables.
            given_up: blocks that nobody will hold once the request has given up its own.

        Returns:
            The op_ids of the saves.
        """
        seqs = list(seqs)
        for seq in seqs:  # before anything is saved: a save takes the slot of a block that nobody holds
            self._hold_saved(seq, keep_from)
        save_ids: list[int] = []
        for seq in seqs:
            for block, key in list(zip(self.kv.full_blocks(seq), seq.block_keys, strict=False))[keep_from:]:
                if not self.is_kept(key) and block in given_up and self.tier.num_available:
                    save_ids.append(self._save(block, key))
                    self.tier.hold(key)
                    seq.swapped_keys.append(key)
        return save_ids

    def _hold_saved(self, seq: Sequence, keep_from: int) -> None:
        """Have the tier hold the blocks of `seq` that it has, and does not hold for it yet."""
        held = set(seq.swapped_keys)
        keys = self.kv.keys_of(seq, self.kv.count_filled(seq))[keep_from:]
        seq.swapped_keys += [key for key in keys if key not in held and self.tier.hold(key)]

    def release(self, seq: Sequence) -> None:
        """Let the tier have the room again that it keeps for `seq`."""
        for key in seq.swapped_keys:
            self.tier.release(key)
        seq.swapped_keys.clear()

    def release_blocks(self, seq: Sequence) -> None:
        """Release the blocks that `seq` holds or waits for; for finish, preemption and error alike."""
        seq.num_lost_tokens = max(seq.num_lost_tokens, seq.num_computed_tokens)
        self.stop_waiting(seq)
        self.kv.free(seq)
        if seq.finish_reason is not None:
            self.abandon(seq)

    def abandon(self, seq: Sequence) -> None:
        """`seq` has ended: release its room, and cancel saves that no other sequence wants."""
        keys = list(seq.swapped_keys)
        self.release(seq)
        self._cancel(self._save_of.get(key) for key in keys if not self.tier.num_holds(key))

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forget blocks whose content cannot be trusted."""
        for key in keys:
            self.tier.drop(key)

    # -- in ----------------------------------------------------------------------------------------------------------

    def find_loadable(self, seq: Sequence, first: int) -> BlockSpan | None:
        """The earliest run of blocks, from place `first` on, that can be loaded for `seq`: its own from the swap tier,
        and with prefix caching all that any tier has."""
        if not seq.swapped_keys and not (self.on_disk or self.tier.num_slots):
            return None
        num_full = (len(seq.token_ids) - 1) // self.kv.block_size  # a token is left to compute
        keys = self.kv.keys_of(seq, num_full)[first:]
        if self.on_disk.isdisjoint(keys) and not self.tier.has_any(keys):
            return None
        swapped = set(seq.swapped_keys)
        may_load_others = not seq.must_compute  # what it has not computed itself brings no logits
        return _first_run(
            [(key in swapped and self._is_coming(key)) or (may_load_others and self.can_load(key)) for key in keys],
            first,
        )

    @property
    def has_blocks(self) -> bool:
        """Whether there may be anything to load."""
        return self.kv.enable_prefix_caching and bool(self.on_disk or self.tier.num_slots)

    def can_load(self, key: bytes) -> bool:
        """Whether a key's block can be loaded for anybody."""
        return self.kv.enable_prefix_caching and (key in self.on_disk or self._is_coming(key))

    def tier_of(self, key: bytes) -> str:
        """Where a block that can be loaded comes from."""
        op_id = self._load_of.get(key)
        if op_id is not None:
            return self._under_way[op_id].transfer.tier
        return "host" if self._is_coming(key) else "disk"

    def is_kept(self, key: bytes) -> bool:
        """Whether a block need not be saved to come back."""
        return key in self.tier or (self.kv.enable_prefix_caching and key in self.on_disk)

    def _is_coming(self, key: bytes) -> bool:
        """Whether the swap tier has a key's block, or will."""
        save = self._save_of.get(key)
        return key in self.tier and (save is None or not self._under_way[save].is_cancelled)

    def swap_in(self, seq: Sequence, span: BlockSpan) -> list[int]:
        """Extend `seq`'s table, which ends before `span`, by blocks to compute and blocks to load.

        The caller has checked that the pool has room (`count_coming`). What is loaded ahead for others makes way.

        Returns:
            The op_ids of loads that this began; others were under way.
        """
        kv = self.kv
        blocks = [kv.pool.allocate() for _ in range(span.start - len(seq.block_table))]
        loading = Loading(span.start * kv.block_size, span.end * kv.block_size)
        load_ids: list[int] = []
        for key in seq.block_keys[span.start : span.end]:
            op_id = self._load_of.get(key)
            if op_id is None:
                op_id = self._load(key)
                load_ids.append(op_id)
            under_way = self._under_way[op_id]
            under_way.waiting.append(seq)
            self._ahead[under_way.transfer.tier].discard(op_id)
            kv.pool.acquire(under_way.transfer.dst)
            blocks.append(under_way.transfer.dst)
            loading.op_ids.add(op_id)
            loading.tiers.append(under_way.transfer.tier)
        seq.loading = loading
        kv.extend_table(seq, blocks)
        for tier in {self._under_way[op_id].transfer.tier for op_id in load_ids}:
            self._cancel(self._ahead[tier].copy())
        return load_ids

    def pop_loaded(self, seq: Sequence) -> Loading | None:
        """Count `seq`'s loaded blocks as computed, if they are all there and so is everything before them.

        Returns:
            The load that ended.
        """
        loading = seq.loading
        if loading is None or loading.op_ids or seq.num_computed_tokens != loading.start:
            return None
        seq.loading = None
        self.kv.count_loaded(seq, loading.end)
        return loading

    def stop_waiting(self, seq: Sequence) -> None:
        """`seq` is about to give up its blocks: what nobody waits for any more need not be loaded."""
        if seq.loading is not None:
            for op_id in seq.loading.op_ids:
                self._leave_queue(op_id, seq)
            seq.loading = None

    def _leave_queue(self, op_id: int, seq: Sequence) -> None:
        waiting = self._under_way[op_id].waiting
        waiting.remove(seq)
        if not waiting:
            self._cancel([op_id])

    # -- before anybody waits ----------------------------------------------------------------------------------------

    def load_ahead(self, key: bytes) -> str:
        """Begin to load a block that nobody waits for yet. Once it is there, it is a cached one.

        The caller has checked that it can be loaded and is not coming, and that the pool has room.

        Returns:
            The tier that it comes from.
        """
        op_id = self._load(key)
        tier = self._under_way[op_id].transfer.tier
        self._ahead[tier].add(op_id)
        return tier

    def is_coming(self, key: bytes) -> bool:
        """Whether a block is being loaded, for whomever."""
        return key in self._load_of

    def count_coming(self, keys: Iterable[bytes]) -> int:
        """How many of these blocks are being loaded: `swap_in` allocates none for them."""
        return sum(1 for key in keys if key in self._load_of)

    def cancel_ahead(self, wanted: Container[bytes] = ()) -> None:
        """Cancel the loads that nobody waits for, but of blocks that are still wanted."""
        for ahead in self._ahead.values():
            self._cancel([op_id for op_id in ahead if self._under_way[op_id].key not in wanted])

    # -- transfers that are taken back -------------------------------------------------------------------------------

    def unsaved(self, seq: Sequence) -> BlockSpan | None:
        """The earliest run of blocks that are being saved for `seq` and can still be cancelled."""
        swapped = set(seq.swapped_keys)
        return _first_run([key in swapped and key in self._save_of and self._is_coming(key) for key in seq.block_keys])

    def unloaded(self, seq: Sequence) -> BlockSpan | None:
        """The blocks that `seq` waits for, from the first that is still coming; None where all are cancelled."""
        loading = seq.loading
        if loading is None:
            return None
        under_way = [self._under_way[op_id] for op_id in loading.op_ids]
        coming = {each.transfer.dst for each in under_way if not each.is_cancelled}
        start, end = loading.start // self.kv.block_size, loading.end // self.kv.block_size
        first = next((at for at in range(start, end) if seq.block_table[at] in coming), None)
        return None if first is None else BlockSpan(first, end)

    def cancel_saves(self, seq: Sequence, span: BlockSpan) -> int:
        """Cancel saves of `seq`'s blocks that no other sequence wants. A save that has begun ends all the same.

        Returns:
            How many are cancelled.
        """
        keys = seq.block_keys[span.start : span.end]
        return self._cancel(self._save_of.get(key) for key in keys if self.tier.num_holds(key) <= 1)

    def cancel_loads(self, seq: Sequence, span: BlockSpan) -> int:
        """Cancel loads of `seq`'s blocks that no other sequence waits for; the blocks will be computed.

        They stay in its table until a report says that their loads have not begun.

        Returns:
            How many are cancelled.
        """
        places = {block: at for at, block in enumerate(seq.block_table)}
        transfers = (self._under_way[op_id] for op_id in _loading_of(seq).op_ids)
        return self._cancel(
            each.transfer.op_id
            for each in transfers
            if span.start <= places[each.transfer.dst] < span.end and len(each.waiting) == 1
        )

    def _cancel(self, op_ids: Iterable[int | None]) -> int:
        """Have the transfer worker leave what it has not begun. A block that is wanted later is asked for anew."""
        num_cancelled = 0
        for op_id in op_ids:
            if op_id is None or self._under_way[op_id].is_cancelled:
                continue
            under_way = self._under_way[op_id]
            under_way.is_cancelled = True
            self._leave_link(under_way.transfer)
            if under_way.transfer.kind == "load":
                _forget(self._load_of, under_way)
            self._cancelled.append(op_id)
            num_cancelled += 1
        return num_cancelled

    # -- transfers that have ended -----------------------------------------------------------------------------------

    def end_transfers(self, reports: Iterable[TransferReport]) -> list[bytes]:
        """Take note of transfers that have ended. A loaded block is found by its key from now on.

        Returns:
            The keys whose saves to disk have ended, well or not.
        """
        ended_saves: list[bytes] = []
        for report in reports:
            failed = set(report.failed)
            for op_id in report.op_ids:
                ended = self._under_way.pop(op_id)
                if not ended.is_cancelled:
                    self._leave_link(ended.transfer)
                is_lost = report.is_cancelled or op_id in failed
                if ended.transfer.kind == "load":
                    self._end_load(ended, is_lost=is_lost, is_cancelled=report.is_cancelled)
                elif ended.entry is not None:
                    _forget(self._save_of, ended)
                    self.tier.end(ended.entry, failed=is_lost)
                else:
                    _forget(self._disk_save_of, ended)
                    ended_saves.append(ended.key)
                    if not is_lost and not ended.is_deleted:
                        self.on_disk.add(ended.key)
        return ended_saves

    def _end_load(self, ended: _Transfer, *, is_lost: bool, is_cancelled: bool) -> None:
        transfer, entry = ended.transfer, ended.entry
        has_no_source = entry is not None and not entry.is_named  # its block's save failed
        if entry is not None:
            self.tier.end(entry, failed=has_no_source or (is_lost and not is_cancelled))
        elif is_lost and not is_cancelled:
            self.on_disk.discard(ended.key)
        _forget(self._load_of, ended)
        for seq in ended.waiting:
            _loading_of(seq).op_ids.discard(transfer.op_id)
        if is_lost or has_no_source:
            for seq in ended.waiting:
                self._cut(seq, seq.block_table.index(transfer.dst))
        elif not ended.is_deleted:
            self.kv.pool.register(transfer.dst, ended.key)
        self.kv.pool.release(transfer.dst)

    def _cut(self, seq: Sequence, at: int) -> None:
        """Give up what was to be loaded from the block at `at` on: it will be computed."""
        loading = _loading_of(seq)
        if at * self.kv.block_size >= loading.end:
            return
        loading.end = at * self.kv.block_size
        still_coming = {self._under_way[op_id].transfer.dst: op_id for op_id in loading.op_ids}
        for block in reversed(self.kv.cut_table(seq, at)):
            if (op_id := still_coming.get(block)) is not None:
                loading.op_ids.remove(op_id)
                self._leave_queue(op_id, seq)
            self.kv.pool.release(block)

    def _save(self, block: int, key: bytes) -> int:
        entry = self.tier.begin_save(key)
        self._save_of[key] = self._send(BlockTransfer(next(self.kv.op_ids), "save", block, entry.slot, key), entry)
        return self._save_of[key]

    def _load(self, key: bytes) -> int:
        tier, entry, slot = self.tier_of(key), None, -1
        if tier == "host":
            entry = self.tier.begin_load(key)
            slot = entry.slot
        transfer = BlockTransfer(next(self.kv.op_ids), "load", slot, self.kv.pool.allocate(), key, tier)
        self._load_of[key] = self._send(transfer, entry)
        return transfer.op_id

    def _send(self, transfer: BlockTransfer, entry: Entry | None) -> int:
        assert transfer.key is not None
        self._transfers.append(transfer)
        self._num_queued[transfer.tier] = self.num_queued(transfer.tier) + 1
        self._under_way[transfer.op_id] = _Transfer(transfer, transfer.key, entry)
        return transfer.op_id

    def _leave_link(self, transfer: BlockTransfer) -> None:
        self._num_queued[transfer.tier] -= 1
        self._ahead[transfer.tier].discard(transfer.op_id)

    # -- to disk -----------------------------------------------------------------------------------------------------

    @property
    def num_saving_to_disk(self) -> int:
        return len(self._disk_save_of)

    def is_saving_to_disk(self, key: bytes) -> bool:
        return key in self._disk_save_of

    def is_on_disk(self, key: bytes) -> bool:
        """Whether a block is on disk, or on its way there."""
        return key in self.on_disk or key in self._disk_save_of

    def save_to_disk(self, block: int, key: bytes, parent: bytes, cost_s: float) -> None:
        """Keep a block that is computed. It may be given up right after.

        Args:
            parent: the key before it.
            cost_s: what computing it is predicted to take.
        """
        transfer = BlockTransfer(next(self.kv.op_ids), "save", block, -1, key, "disk", parent, cost_s)
        self._disk_save_of[key] = self._send(transfer, None)

    def delete(self, keys: set[bytes]) -> None:
        """Forget blocks that were deleted on disk, in all tiers. Who waits for one that is being loaded still gets it.

        What is on its way to disk is refused there, or was deleted as well.
        """
        self.on_disk -= keys
        self.drop(keys)
        for op_of in (self._disk_save_of, self._load_of):
            for key in keys & op_of.keys():
                self._under_way[op_of[key]].is_deleted = True
        for key in keys:
            self._load_of.pop(key, None)

    def num_queued(self, tier: str, *, is_waited_for: bool = False) -> int:
        """Blocks under way on one tier's link, either way, that are not cancelled.

        Args:
            is_waited_for: only those that would not make way for a load that somebody waits for.
        """
        return self._num_queued.get(tier, 0) - (len(self._ahead[tier]) if is_waited_for else 0)

    def check_integrity(self, sequences: list[Sequence]) -> None:
        """Raise AssertionError unless slots, transfers and the sequences that wait for them agree."""
        self.tier.check_integrity()
        going = [each for each in self._under_way.values() if not each.is_cancelled]
        assert sum(self._num_queued.values()) == len(going)
        ahead = {op_id for op_ids in self._ahead.values() for op_id in op_ids}
        assert ahead == {each.transfer.op_id for each in going if each.transfer.kind == "load" and not each.waiting}
        for op_id, under_way in self._under_way.items():
            assert all(op_id in _loading_of(seq).op_ids for seq in under_way.waiting)
        for seq in sequences:
            if seq.loading is not None:
                assert all(seq in self._under_way[op_id].waiting for op_id in seq.loading.op_ids)
        self.kv.check_integrity(sequences, self.loading_blocks())

    def loading_blocks(self) -> list[int]:
        """The blocks that loads under way hold."""
        return [each.transfer.dst for each in self._under_way.values() if each.transfer.kind == "load"]


def _loading_of(seq: Sequence) -> Loading:
    assert seq.loading is not None, f"{seq!r} waits for no block"
    return seq.loading


def _forget(op_of: dict[bytes, int], under_way: _Transfer) -> None:
    """Its key is not found under this transfer any more; another may have taken its place."""
    if op_of.get(under_way.key) == under_way.transfer.op_id:
        del op_of[under_way.key]


def _first_run(flags: list[bool], first: int = 0) -> BlockSpan | None:
    """The first places in a row that are true, where the first flag is for place `first`."""
    if True not in flags:
        return None
    start = flags.index(True)
    end = next((at for at in range(start, len(flags)) if not flags[at]), len(flags))
    return BlockSpan(first + start, first + end)
