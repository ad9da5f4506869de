"""Blocks beyond the device, in the swap tier and on disk: saves, loads, and the sequences that wait for them.

Three rules prevent damage by late transfers:

- A load holds its block, whatever happens to the requests that wait for it.
- A load that follows the save of its block fails if that save fails.
- A cancelled transfer stays pending until its report says that it has not begun.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from quire.core.decisions.costs import TIERS
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Loading, Sequence
from quire.core.tier_index import TierIndex
from quire.core.transfers import PendingTransfer, Transfers
from quire.outputs import BlockTransfer, TransferReport


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Blocks [start, end) of a sequence's table."""

    start: int
    end: int


class SwapManager:
    """The tiers besides the device. Owns the swap tier's index and `Sequence.swapped_keys`. Other processes may change
    the disk at any time, so a load from it may fail."""

    def __init__(self, kv: KVCacheManager, num_slots: int = 0) -> None:
        self.kv = kv
        self.tier = TierIndex(num_slots)
        self.on_disk: set[bytes] = set()
        self.transfers = Transfers()
        self._load_of: dict[bytes, int] = {}  #: key -> op_id of its load
        self._save_of: dict[bytes, int] = {}  #: key -> op_id of its save to the swap tier
        self._disk_save_of: dict[bytes, int] = {}  #: key -> op_id of its save to disk

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
                    save_ids.append(self._save(block, key))
                    self.tier.hold(key)
                    seq.swapped_keys.append(key)
        return save_ids

    def _hold_saved(self, seq: Sequence, keep_from: int) -> None:
        held = set(seq.swapped_keys)
        keys = self.kv.keys_of(seq, self.kv.count_filled(seq))[keep_from:]
        seq.swapped_keys += [key for key in keys if key not in held and self.tier.hold(key)]

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
            self.tier.invalidate(key)

    def find_loadable(self, seq: Sequence, first: int) -> BlockSpan | None:
        """Return the first run of loadable blocks from `first` on: `seq`'s own; with prefix caching, any request's."""
        if not seq.swapped_keys and not (self.on_disk or self.tier.num_slots):
            return None
        num_full = (len(seq.token_ids) - 1) // self.kv.block_size  # the last token is always computed
        keys = self.kv.keys_of(seq, num_full)[first:]
        if self.on_disk.isdisjoint(keys) and not self.tier.has_any(keys):
            return None
        swapped = set(seq.swapped_keys)
        may_load_others = not seq.must_compute  # logits exist only for tokens that it computes itself
        return _first_run(
            [(key in swapped and self._is_swapped(key)) or (may_load_others and self.can_load(key)) for key in keys],
            first,
        )

    @property
    def has_blocks(self) -> bool:
        return self.kv.enable_prefix_caching and bool(self.on_disk or self.tier.num_slots)

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

    def swap_in(self, seq: Sequence, span: BlockSpan) -> list[int]:
        """Extend `seq`'s table, which ends before `span`, by blocks to compute and blocks to load. The caller has
        checked the pool's room (`count_loading`). Cancels loads ahead. Returns the op_ids of new loads."""
        kv = self.kv
        blocks = [kv.pool.allocate() for _ in range(span.start - len(seq.block_table))]
        loading = Loading(span.start * kv.block_size, span.end * kv.block_size)
        load_ids: list[int] = []
        for key in seq.block_keys[span.start : span.end]:
            op_id = self._load_of.get(key)
            if op_id is None:
                op_id = self._load(key)
                load_ids.append(op_id)
            self.transfers.wait(op_id, seq)
            transfer = self.transfers[op_id].transfer
            kv.pool.acquire(transfer.dst)
            blocks.append(transfer.dst)
            loading.op_ids.add(op_id)
            loading.tiers.append(transfer.tier)
        seq.loading = loading
        kv.extend_table(seq, blocks)
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
        op_id = self._load(key)
        self.transfers.mark_ahead(op_id)
        return self.transfers[op_id].transfer.tier

    def is_loading(self, key: bytes) -> bool:
        return key in self._load_of

    def count_loading(self, keys: Iterable[bytes]) -> int:
        return sum(1 for key in keys if key in self._load_of)

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
        start, end = loading.start // self.kv.block_size, loading.end // self.kv.block_size
        first = next((at for at in range(start, end) if seq.block_table[at] in loading_blocks), None)
        return None if first is None else BlockSpan(first, end)

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
                elif ended.entry is not None:
                    _remove(self._save_of, ended)
                    self.tier.end(ended.entry, failed=is_lost)
                else:
                    _remove(self._disk_save_of, ended)
                    ended_saves.append(ended.key)
                    if not is_lost and not ended.is_deleted:
                        self.on_disk.add(ended.key)
        return ended_saves

    def _end_load(self, ended: PendingTransfer, *, is_lost: bool, is_cancelled: bool) -> None:
        transfer, entry = ended.transfer, ended.entry
        has_no_source = entry is not None and not entry.is_valid  # the save of its block failed
        if entry is not None:
            self.tier.end(entry, failed=has_no_source or (is_lost and not is_cancelled))
        elif is_lost and not is_cancelled:
            self.on_disk.discard(ended.key)
        _remove(self._load_of, ended)
        for seq in ended.waiting:
            _loading_of(seq).op_ids.discard(transfer.op_id)
        if is_lost or has_no_source:
            for seq in ended.waiting:
                self._cut(seq, seq.block_table.index(transfer.dst))
        elif not ended.is_deleted:
            self.kv.pool.register(transfer.dst, ended.key)
        self.kv.pool.release(transfer.dst)

    def _cut(self, seq: Sequence, at: int) -> None:
        """Shorten the load of `seq` to the blocks before position `at`; the others will be computed."""
        loading = _loading_of(seq)
        if at * self.kv.block_size >= loading.end:
            return
        loading.end = at * self.kv.block_size
        still_loading = {self.transfers[op_id].transfer.dst: op_id for op_id in loading.op_ids}
        for block in reversed(self.kv.cut_table(seq, at)):
            if (op_id := still_loading.get(block)) is not None:
                loading.op_ids.remove(op_id)
                self._leave_queue(op_id, seq)
            self.kv.pool.release(block)

    def _save(self, block: int, key: bytes) -> int:
        entry = self.tier.begin_save(key)
        transfer = BlockTransfer(next(self.kv.op_ids), "save", block, entry.slot, key)
        self._save_of[key] = self.transfers.send(transfer, entry)
        return transfer.op_id

    def _load(self, key: bytes) -> int:
        tier, entry, slot = self.tier_of(key), None, -1
        if tier == "host":
            entry = self.tier.begin_load(key)
            slot = entry.slot
        transfer = BlockTransfer(next(self.kv.op_ids), "load", slot, self.kv.pool.allocate(), key, tier)
        self._load_of[key] = self.transfers.send(transfer, entry)
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
        self._disk_save_of[key] = self.transfers.send(transfer, None)

    def delete(self, keys: set[bytes]) -> None:
        """Remove blocks deleted on disk from all tiers. Sequences that wait for their loads still get them."""
        self.on_disk -= keys
        self.invalidate(keys)
        for op_of in (self._disk_save_of, self._load_of):
            for key in keys & op_of.keys():
                self.transfers[op_of[key]].is_deleted = True
        for key in keys:
            self._load_of.pop(key, None)

    def check_integrity(self, sequences: list[Sequence]) -> None:
        self.tier.check_integrity()
        self.transfers.check_integrity(sequences)
        self.kv.check_integrity(sequences, self.loading_blocks())

    def loading_blocks(self) -> list[int]:
        return [each.transfer.dst for each in self.transfers if each.transfer.kind == "load"]


def _loading_of(seq: Sequence) -> Loading:
    assert seq.loading is not None, f"{seq!r} waits for no block"
    return seq.loading


def _remove(op_of: dict[bytes, int], pending: PendingTransfer) -> None:
    if op_of.get(pending.key) == pending.transfer.op_id:
        del op_of[pending.key]


def _first_run(flags: list[bool], first: int = 0) -> BlockSpan | None:
    if True not in flags:
        return None
    start = flags.index(True)
    end = next((at for at in range(start, len(flags)) if not flags[at]), len(flags))
    return BlockSpan(first + start, first + end)
