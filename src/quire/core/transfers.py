"""Pending saves and loads: decided, sent with a step, and not yet reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from quire.core.decisions.costs import TIERS
from quire.core.request import Sequence
from quire.core.tier_index import Entry
from quire.outputs import BlockTransfer


@dataclass(slots=True)
class PendingTransfer:
    transfer: BlockTransfer
    keys: Seq[bytes]  #: of its records
    entries: Seq[Entry]  #: of its records in the swap tier; none for the disk
    waiting: list[Sequence] = field(default_factory=list)  #: of a load
    is_cancelled: bool = False  #: it does not begin, unless it has
    is_private: bool = False  #: its block gets no key: it is not full, or its key was deleted meanwhile

    @property
    def key(self) -> bytes:
        """The last key, which tells a load with a state from one without."""
        return self.keys[-1]


class Transfers:
    """The pending transfers of one engine between the device and its tiers."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingTransfer] = {}  #: by op_id
        self._new: list[BlockTransfer] = []  #: to send with the next step
        self._cancelled: list[int] = []  #: op_ids to send with the next step
        self._num_queued: dict[str, int] = dict.fromkeys(TIERS, 0)  #: without cancelled ones
        self._ahead: dict[str, set[int]] = {tier: set() for tier in TIERS}  #: op_ids of loads without waiting sequences

    def __len__(self) -> int:
        return len(self._pending)

    def __getitem__(self, op_id: int) -> PendingTransfer:
        return self._pending[op_id]

    def __iter__(self) -> Iterator[PendingTransfer]:
        return iter(self._pending.values())

    def send(
        self, transfer: BlockTransfer, keys: Seq[bytes], entries: Seq[Entry] = (), *, is_private: bool = False
    ) -> int:
        """Send a transfer with the next step. Arguments: see `PendingTransfer`."""
        self._new.append(transfer)
        self._num_queued[transfer.tier] += len(keys)
        self._pending[transfer.op_id] = PendingTransfer(transfer, keys, entries, is_private=is_private)
        return transfer.op_id

    def pop_new(self) -> list[BlockTransfer]:
        """Return the saves and loads decided since the last call."""
        new, self._new = self._new, []
        return new

    def pop_cancelled(self) -> list[int]:
        """Return the op_ids cancelled since the last call."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def mark_ahead(self, op_id: int) -> None:
        self._ahead[self._pending[op_id].transfer.tier].add(op_id)

    def wait(self, op_id: int, seq: Sequence) -> None:
        pending = self._pending[op_id]
        pending.waiting.append(seq)
        self._ahead[pending.transfer.tier].discard(op_id)

    def ahead(self, tier: str) -> set[int]:
        """Return the op_ids of a tier's loads without waiting sequences."""
        return self._ahead[tier].copy()

    def cancel(self, op_id: int) -> bool:
        """Cancel a transfer, if it has not begun. Returns False if it is cancelled already."""
        pending = self._pending[op_id]
        if pending.is_cancelled:
            return False
        pending.is_cancelled = True
        self._free_link(pending)
        self._cancelled.append(op_id)
        return True

    def end(self, op_id: int) -> PendingTransfer:
        ended = self._pending.pop(op_id)
        if not ended.is_cancelled:
            self._free_link(ended)
        return ended

    def num_queued(self, tier: str, *, is_waited_for: bool = False) -> int:
        """Count uncancelled records on a tier's link; `is_waited_for` leaves out loads ahead."""
        return self._num_queued[tier] - (len(self._ahead[tier]) if is_waited_for else 0)

    def _free_link(self, pending: PendingTransfer) -> None:
        transfer = pending.transfer
        self._num_queued[transfer.tier] -= len(pending.keys)
        self._ahead[transfer.tier].discard(transfer.op_id)

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        going = [each for each in self if not each.is_cancelled]
        assert sum(self._num_queued.values()) == sum(len(each.keys) for each in going)
        ahead = {op_id for op_ids in self._ahead.values() for op_id in op_ids}
        assert ahead == {each.transfer.op_id for each in going if each.transfer.kind == "load" and not each.waiting}
        for op_id, pending in self._pending.items():
            assert all(seq.loading is not None and op_id in seq.loading.op_ids for seq in pending.waiting)
        for seq in sequences:
            if seq.loading is not None:
                assert all(seq in self._pending[op_id].waiting for op_id in seq.loading.op_ids)
