"""Blocks beyond the device, in the swap tier and on disk: saves, loads, and the sequences that wait for them.

Three rules prevent damage by late transfers:

- A load holds its block, whatever happens to the requests that wait for it.
- A load that follows the save of its block fails if that save fails.
- A cancelled transfer stays pending until its report says that it has not begun.

A model with recurrent states stores a block as records: the KV of its attention layers under the block's key, and where
a block is kept with its state, the parts of the state under keys of their own (`state_keys`). A sequence goes on only
from a block with a state, so the last block of a load is whole, and a load that fails anywhere is lost as a whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from quire.core.block_keys import state_keys
from quire.core.decisions.costs import TIERS
from quire.core.kv_cache_manager import KVCacheManager, check_tables
from quire.core.request import Loading, Sequence
from quire.core.tier_index import TierIndex
from quire.core.transfers import PendingTransfer, Transfers
from quire.outputs import OTHER_PROCESS, BlockTransfer, TransferReport


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Blocks [start, end) of a sequence's table."""

    start: int
    end: int
    num_tokens: int = 0  #: up to its end; 0: of full blocks


class SwapManager:
    """The tiers besides the device. Owns the swap tier's index and `Sequence.swapped_keys`. Other processes may change
    the disk at any time, so a load from it may fail."""

    def __init__(self, kv: KVCacheManager, num_slots: int = 0) -> None:
        self.kv = kv
        self.tier = TierIndex(num_slots)
        self.on_disk: set[bytes] = set()
        self.by_others: set[bytes] = set()  #: of these, blocks that other processes wrote while this one ran
        self.transfers = Transfers()
        self._load_of: dict[bytes, int] = {}  #: `PendingTransfer.key` -> op_id of its load
        self._save_of: dict[bytes, int] = {}  #: key of a record -> op_id of its save to the swap tier
        self._disk_save_of: dict[bytes, int] = {}  #: key of a record -> op_id of its save to disk

    def swap_out(self, seqs: Iterable[Sequence], keep_from: int, freed: set[int]) -> list[int]:
        """Have the swap tier hold full blocks from position `keep_from` on, before the sequences release them. Skips
        blocks that other requests hold (not in `freed`) or that find no room. Returns the op_ids of the saves; blocks
        in the tier or on disk need none."""
        seqs = list(seqs)
        for seq in seqs:  # before the first save: it may take the slot of a block that is not held
            self._hold_saved(seq, keep_from)
        save_ids: list[int] = []
        for seq in seqs:
            for block, key in list(zip(self.kv.full_blocks(seq), seq.block_keys, strict=False))[keep_from:]:
                if not self.is_kept(key) and block in freed and self.tier.num_available:
                    save_ids.append(self._save(seq, block, {0: key}))
            if self.kv.num_state_records and seq.loading is None:
                unsaved = self.unsaved_state(seq)
                if unsaved and len(unsaved) <= self.tier.num_available:
                    save_ids.append(self._save(seq, seq.block_table[-1], unsaved))
        return save_ids

    def _hold_saved(self, seq: Sequence, keep_from: int) -> None:
        held = set(seq.swapped_keys)
        keys = self.kv.keys_of(seq, self.kv.count_filled(seq))[keep_from:]
        if self.kv.num_state_records and (end := self.kv.end_of(seq)):
            keys += self._record_keys(self.kv.key_at(seq, end))
        seq.swapped_keys += [key for key in dict.fromkeys(keys) if key not in held and self.tier.hold(key)]

    def unsaved_state(self, seq: Sequence) -> dict[int, bytes]:
        """Return the records to save, by part, for `seq` to go on after its last computed token."""
        if not (self.kv.num_state_records and seq.num_computed_tokens):
            return {}
        keys = self._record_keys(self.kv.key_at(seq, seq.num_computed_tokens))
        return {part: key for part, key in enumerate(keys) if not self.is_kept(key)}

    def _record_keys(self, key: bytes) -> list[bytes]:
        return [key, *state_keys(key, self.kv.num_state_records)]

    def release(self, seq: Sequence) -> None:
        """Release the slots that the tier holds for `seq`."""
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
        """Release the slots of an ended sequence, and cancel saves that no other sequence needs."""
        keys = list(seq.swapped_keys)
        self.release(seq)
        self._cancel(self._save_of.get(key) for key in keys if not self.tier.num_holds(key))

    def invalidate(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            for record in self._record_keys(key):
                self.tier.invalidate(record)

    def find_loadable(self, seq: Sequence, first: int) -> BlockSpan | None:
        """Return the first run of loadable blocks from `first` on: `seq`'s own; with prefix caching, any request's."""
        if not seq.swapped_keys and not (self.on_disk or self.tier.num_slots):
            return None
        num_full = (len(seq.token_ids) - 1) // self.kv.block_size  # the last token is always computed
        if self.kv.num_state_records:
            return self._find_state(seq, first, num_full)
        keys = self.kv.keys_of(seq, num_full)[first:]
        if self.on_disk.isdisjoint(keys) and not self.tier.has_any(keys):
            return None
        swapped = set(seq.swapped_keys)
        may_load_others = not seq.must_compute  # logits exist only for tokens that it computes itself
        return _first_run(
            [(key in swapped and self._is_swapped(key)) or (may_load_others and self.can_load(key)) for key in keys],
            first,
        )

    def _find_state(self, seq: Sequence, first: int, num_full: int) -> BlockSpan | None:
        """Return the blocks from `first` on, here or loadable, up to the last one with a state."""
        keys, end = self.kv.keys_of(seq, num_full), seq.num_lost_tokens
        swapped = set(seq.swapped_keys)
        at = first
        while at < num_full and self._source(seq, [keys[at]], swapped) is not None:
            at += 1
        if swapped and at == end // self.kv.block_size and at * self.kv.block_size < end < len(seq.token_ids):
            tail = self._record_keys(self.kv.key_at(seq, end))
            if swapped.issuperset(tail) and self._source(seq, tail, swapped) is not None:
                return BlockSpan(first, at + 1, end)
        while at > first and not self._has_state(seq, keys[at - 1], swapped):
            at -= 1
        return BlockSpan(first, at) if at > first else None

    def _has_state(self, seq: Sequence, key: bytes, swapped: set[bytes]) -> bool:
        sizes = (1, self.kv.num_state_records)  # most blocks have not even the first record
        return all(self._source(seq, [key, *state_keys(key, size)], swapped) is not None for size in sizes)

    def _source(self, seq: Sequence, keys: Seq[bytes], swapped: set[bytes]) -> str | None:
        """Return the tier where `seq` finds all records of a block, or "device"; None if there is none."""
        may_share = self.kv.enable_prefix_caching and not seq.must_compute
        if may_share and self._cached(keys[0], is_whole=len(keys) > 1) is not None:
            return "device"
        if all((may_share or key in swapped) and self._is_swapped(key) for key in keys):
            return "host"
        return "disk" if may_share and self.on_disk.issuperset(keys) else None

    def _cached(self, key: bytes, *, is_whole: bool) -> int | None:
        block = self.kv.pool.find(key)
        return None if block is not None and is_whole and self.kv.pool.has_thin((block,)) else block

    def tiers(self, seq: Sequence, span: BlockSpan) -> list[str]:
        """Return the tier of each block of a span that `find_loadable` has returned."""
        if not self.kv.num_state_records:
            return [self.tier_of(key) for key in self.kv.keys_of(seq, span.end)[span.start :]]
        swapped = set(seq.swapped_keys)
        return [self._source(seq, keys, swapped) or self.tier_of(keys[-1]) for keys in self._records(seq, span)]

    def _records(self, seq: Sequence, span: BlockSpan) -> list[list[bytes]]:
        """Return the keys of the records to load for each block of a span."""
        last = self.kv.key_at(seq, span.num_tokens or span.end * self.kv.block_size)
        return [*([key] for key in self.kv.keys_of(seq, span.end - 1)[span.start :]), self._record_keys(last)]

    def can_load(self, key: bytes) -> bool:
        """Whether any request can load a key's block."""
        return self.kv.enable_prefix_caching and (key in self.on_disk or self._is_swapped(key))

    def tier_of(self, key: bytes) -> str:
        """The tier from which a block can be loaded."""
        op_id = self._load_of.get(key)
        if op_id is not None:
            return self.transfers[op_id].transfer.tier
        return "host" if self._is_swapped(key) else "disk"

    def is_kept(self, key: bytes) -> bool:
        """Whether a block can be loaded later without a save."""
        return key in self.tier or (self.kv.enable_prefix_caching and key in self.on_disk)

    def _is_swapped(self, key: bytes) -> bool:
        save = self._save_of.get(key)
        return key in self.tier and (save is None or not self.transfers[save].is_cancelled)

    def has_room_for(self, seq: Sequence, first: int, span: BlockSpan) -> bool:
        """Whether the pool has room for the blocks from position `first` to the end of a span to load."""
        if self.kv.num_state_records:
            return self.kv.pool.has_room(1, span.end - span.start - 1)
        num_new = span.end - first - self.count_loading(self.kv.keys_of(seq, span.end)[span.start :])
        return self.kv.pool.num_available >= num_new

    def swap_in(self, seq: Sequence, span: BlockSpan) -> list[int]:
        """Extend `seq`'s table, which ends before `span`, by blocks to compute and blocks to load. The caller has
        checked the pool's room. Cancels loads ahead. Returns the op_ids of new loads."""
        kv = self.kv
        kv.extend_table(seq, [kv.pool.allocate() for _ in range(span.start - len(seq.block_table))])
        loading = Loading(span.start * kv.block_size, span.num_tokens or span.end * kv.block_size)
        records = self._records(seq, span)
        blocks: list[int | None] = []
        for keys, tier in zip(records, self.tiers(seq, span), strict=True):
            loading.sources.append(OTHER_PROCESS if tier == "disk" and keys[0] in self.by_others else tier)
            blocks.append(self._cached(keys[0], is_whole=len(keys) > 1) if tier == "device" else None)
            if (block := blocks[-1]) is not None:  # before a load takes its memory
                kv.hold(block, has_state=len(keys) > 1)
        load_ids: list[int] = []
        for block, keys in zip(blocks, records, strict=True):
            if block is None:
                op_id = self._load_of.get(keys[-1])
                if op_id is None:
                    op_id = self._load(keys, is_full=keys is not records[-1] or loading.end % kv.block_size == 0)
                    load_ids.append(op_id)
                self.transfers.wait(op_id, seq)
                loading.op_ids.add(op_id)
                block = self.transfers[op_id].transfer.dst
                kv.hold(block, has_state=len(keys) > 1)
            kv.extend_table(seq, [block])
        if kv.num_state_records:
            seq.states_at.append(len(seq.block_table) - 1)
        seq.loading = loading
        for tier in {self.transfers[op_id].transfer.tier for op_id in load_ids}:
            self._cancel(self.transfers.ahead(tier))
        return load_ids

    def pop_loaded(self, seq: Sequence) -> Loading | None:
        """Count `seq`'s loaded blocks as computed and return the load, once it and all tokens before are complete."""
        loading = seq.loading
        if loading is None or loading.op_ids or seq.num_computed_tokens != loading.start:
            return None
        seq.loading = None
        self.kv.count_loaded(seq, loading.end)
        return loading

    def stop_waiting(self, seq: Sequence) -> None:
        """Cancel loads that only `seq` waits for, before it releases its blocks."""
        if seq.loading is not None:
            for op_id in seq.loading.op_ids:
                self._leave_queue(op_id, seq)
            seq.loading = None

    def _leave_queue(self, op_id: int, seq: Sequence) -> None:
        waiting = self.transfers[op_id].waiting
        waiting.remove(seq)
        if not waiting:
            self._cancel([op_id])

    def load_ahead(self, key: bytes) -> str:
        """Begin to load a block that no sequence waits for; it becomes a cached block. Returns its tier."""
        op_id = self._load([key])
        self.transfers.mark_ahead(op_id)
        return self.transfers[op_id].transfer.tier

    def is_loading(self, key: bytes) -> bool:
        return key in self._load_of

    def count_loading(self, keys: Iterable[bytes]) -> int:
        return sum(key in self._load_of for key in keys)

    def cancel_ahead(self, wanted: Container[bytes] = ()) -> None:
        """Cancel all loads ahead but those of wanted blocks."""
        for tier in TIERS:
            ahead = self.transfers.ahead(tier)
            self._cancel(op_id for op_id in ahead if self.transfers[op_id].key not in wanted)

    def unsaved(self, seq: Sequence) -> BlockSpan | None:
        """The first run of blocks whose saves for `seq` can still be cancelled."""
        swapped = set(seq.swapped_keys)
        return _first_run([key in swapped and key in self._save_of and self._is_swapped(key) for key in seq.block_keys])

    def unloaded(self, seq: Sequence) -> BlockSpan | None:
        """The blocks that `seq` waits for, from the first pending one on; None if all are cancelled."""
        loading = seq.loading
        if loading is None:
            return None
        pending = [self.transfers[op_id] for op_id in loading.op_ids]
        loading_blocks = {each.transfer.dst for each in pending if not each.is_cancelled}
        start, end = loading.start // self.kv.block_size, len(seq.block_table)
        first = next((at for at in range(start, end) if seq.block_table[at] in loading_blocks), None)
        num_tokens = loading.end if loading.end % self.kv.block_size else 0
        return None if first is None else BlockSpan(first, end, num_tokens)

    def cancel_saves(self, seq: Sequence, span: BlockSpan) -> int:
        """Cancel saves of `seq`'s blocks that no other sequence needs. Returns their number; some may have begun."""
        keys = seq.block_keys[span.start : span.end]
        return self._cancel(self._save_of.get(key) for key in keys if self.tier.num_holds(key) <= 1)

    def cancel_loads(self, seq: Sequence, span: BlockSpan) -> int:
        """Cancel loads that only `seq` waits for; return their number. The blocks stay in its table until a report says
        that their loads have not begun; then they are computed."""
        position_of = {block: at for at, block in enumerate(seq.block_table)}
        transfers = (self.transfers[op_id] for op_id in _loading_of(seq).op_ids)
        return self._cancel(
            each.transfer.op_id
            for each in transfers
            if span.start <= position_of[each.transfer.dst] < span.end and len(each.waiting) == 1
        )

    def _cancel(self, op_ids: Iterable[int | None]) -> int:
        num_cancelled = 0
        for op_id in op_ids:
            if op_id is not None and self.transfers.cancel(op_id):
                pending = self.transfers[op_id]
                if pending.transfer.kind == "load":
                    _remove(self._load_of, pending)
                num_cancelled += 1
        return num_cancelled

    def end_transfers(self, reports: Iterable[TransferReport]) -> list[bytes]:
        """Apply reports of ended transfers. Returns the keys whose saves to disk have ended, successfully or not."""
        ended_saves: list[bytes] = []
        for report in reports:
            failed = set(report.failed)
            for op_id in report.op_ids:
                ended = self.transfers.end(op_id)
                is_lost = report.is_cancelled or op_id in failed
                if ended.transfer.kind == "load":
                    self._end_load(ended, is_lost=is_lost, is_cancelled=report.is_cancelled)
                elif ended.entries:
                    _remove(self._save_of, ended)
                    for entry in ended.entries:
                        self.tier.end(entry, failed=is_lost)
                else:
                    _remove(self._disk_save_of, ended)
                    ended_saves += ended.keys
                    if not is_lost and not ended.is_private:
                        self.on_disk.update(ended.keys)
                        self.by_others.difference_update(ended.keys)
        return ended_saves

    def _end_load(self, ended: PendingTransfer, *, is_lost: bool, is_cancelled: bool) -> None:
        transfer = ended.transfer
        has_no_source = not all(entry.is_valid for entry in ended.entries)  # the save of its block failed
        for entry in ended.entries:
            self.tier.end(entry, failed=has_no_source or (is_lost and not is_cancelled))
        if is_lost and not is_cancelled and not ended.entries:
            self.on_disk.difference_update(ended.keys)
        _remove(self._load_of, ended)
        for seq in ended.waiting:
            _loading_of(seq).op_ids.discard(transfer.op_id)
        if is_lost or has_no_source:
            for seq in ended.waiting:
                self._cut(seq, seq.block_table.index(transfer.dst))
        elif not ended.is_private:
            self.kv.pool.register(transfer.dst, ended.keys[0])
        self.kv.release_hold(transfer.dst, has_state=len(ended.keys) > 1)

    def _cut(self, seq: Sequence, at: int) -> None:
        """Shorten the load of `seq` to the blocks before position `at`; the others will be computed."""
        loading = _loading_of(seq)
        if self.kv.num_state_records:
            at = loading.start // self.kv.block_size
        if at * self.kv.block_size >= loading.end:
            return
        loading.end = at * self.kv.block_size
        still_loading = {self.transfers[op_id].transfer.dst: op_id for op_id in loading.op_ids}
        for block in reversed(self.kv.cut_table(seq, at)):
            if (op_id := still_loading.get(block)) is not None:
                loading.op_ids.remove(op_id)
                self._leave_queue(op_id, seq)

    def _save(self, seq: Sequence, block: int, records: dict[int, bytes]) -> int:
        """Save the records of a block, by part, to the swap tier, which holds them for `seq`."""
        keys = list(records.values())
        entries = [self.tier.begin_save(key) for key in keys]
        transfer = BlockTransfer(next(self.kv.op_ids), "save", block, entries[0].slot, keys[0])
        if list(records) != [0]:
            transfer.records = [(part, entry.slot, entry.key) for part, entry in zip(records, entries, strict=True)]
        self.transfers.send(transfer, keys, entries)
        for key in keys:
            self._save_of[key] = transfer.op_id
            self.tier.hold(key)
        seq.swapped_keys += keys
        return transfer.op_id

    def _load(self, keys: Seq[bytes], *, is_full: bool = True) -> int:
        """Load the records of a block, from its first part on."""
        tier = "host" if all(self._is_swapped(key) for key in keys) else "disk"
        entries = [self.tier.begin_load(key) for key in keys] if tier == "host" else []
        slots = [entry.slot for entry in entries] or [-1] * len(keys)
        block = self.kv.allocate_for_load(has_state=len(keys) > 1)
        transfer = BlockTransfer(next(self.kv.op_ids), "load", slots[0], block, keys[0], tier)
        if len(keys) > 1:
            transfer.records = list(zip(range(len(keys)), slots, keys, strict=True))
        self._load_of[keys[-1]] = self.transfers.send(transfer, keys, entries, is_private=not is_full)
        return transfer.op_id

    @property
    def num_saving_to_disk(self) -> int:
        return len(self._disk_save_of)

    def is_saving_to_disk(self, key: bytes) -> bool:
        return key in self._disk_save_of

    def is_on_disk(self, key: bytes) -> bool:
        return key in self.on_disk or key in self._disk_save_of

    def save_to_disk(self, block: int, key: bytes, parent: bytes, cost_s: float) -> None:
        """Save a computed block, which may be released right after. `cost_s`: predicted seconds to compute it."""
        transfer = BlockTransfer(next(self.kv.op_ids), "save", block, -1, key, "disk", parent, cost_s)
        self._disk_save_of[key] = self.transfers.send(transfer, [key])

    def save_state_to_disk(self, block: int, key: bytes, cost_s: float) -> None:
        """Save the state that a computed block has. `cost_s`: predicted seconds to compute it again."""
        keys = state_keys(key, self.kv.num_state_records)
        transfer = BlockTransfer(next(self.kv.op_ids), "save", block, -1, key, "disk", key, cost_s / len(keys))
        transfer.records = [(part, -1, record) for part, record in enumerate(keys, start=1)]
        self._disk_save_of.update(dict.fromkeys(keys, self.transfers.send(transfer, keys)))

    def has_state_on_disk(self, key: bytes) -> bool:
        return all(self.is_on_disk(record) for record in state_keys(key, self.kv.num_state_records))

    def delete(self, keys: set[bytes]) -> None:
        """Remove blocks deleted on disk from all tiers. Sequences that wait for their loads still get them."""
        keys = {record for key in keys for record in self._record_keys(key)}
        self.on_disk -= keys
        self.invalidate(keys)
        for op_of in (self._disk_save_of, self._load_of):
            for key in keys & op_of.keys():
                self.transfers[op_of[key]].is_private = True
        for key in keys:
            self._load_of.pop(key, None)

    def check_integrity(self, sequences: list[Sequence]) -> None:
        self.tier.check_integrity()
        self.transfers.check_integrity(sequences)
        check_tables(self.kv, sequences, self.loading_blocks())

    def loading_blocks(self) -> list[int]:
        return [each.transfer.dst for each in self.transfers if each.transfer.kind == "load"]


def _loading_of(seq: Sequence) -> Loading:
    assert seq.loading is not None, f"{seq!r} waits for no block"
    return seq.loading


def _remove(op_of: dict[bytes, int], pending: PendingTransfer) -> None:
    for key in pending.keys:
        if op_of.get(key) == pending.transfer.op_id:
            del op_of[key]


def _first_run(flags: list[bool], first: int = 0) -> BlockSpan | None:
    if True not in flags:
        return None
    start = flags.index(True)
    end = next((at for at in range(start, len(flags)) if not flags[at]), len(flags))
    return BlockSpan(first + start, first + end)
