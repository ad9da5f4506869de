"""An engine's link to the disk tier: the block store, the worker that moves blocks, and a wake-up event."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence

import numpy as np

from quire.ops.arrays import Array
from quire.outputs import BlockTransfer, SchedulerOutput, StoreChanges
from quire.tiers.store.block_store import BlockStore, StoredBlock
from quire.tiers.streams import Done
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")


class StoreSpace:
    """A block store as a `SwapSpace` without slots: it finds blocks by key."""

    is_memory = False
    num_slots = 0

    def __init__(self, store: BlockStore, block_bytes: int) -> None:
        self.store = store
        self.block_bytes = block_bytes
        self._announced: dict[bytes, StoredBlock] = {}  #: records of pending saves, by key

    def announce(self, saves: Iterable[BlockTransfer], epoch: int, must_code: bool) -> None:
        """Record key, parent, cost and epoch of blocks that will be written, and whether to code them."""
        for save in saves:
            assert save.key is not None
            for key in [key for _, _, key in save.records] or [save.key]:
                self._announced[key] = StoredBlock(key, save.parent, save.cost_s, epoch, must_code)

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        return self.store.write([self._announced.pop(key) for key in keys], blocks)

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray | Sequence[memoryview]) -> list[int]:
        return self.store.read(keys, into)


class DiskLink:
    """Connects an engine to its block store. `has_reports` is set for reports and store changes."""

    def __init__(self, cache: Array, store: BlockStore, block_bytes: int, *, bandwidth: float | None = None) -> None:
        self.store = store
        self.always_codes = False  #: whatever `submit` is told
        self.has_reports = threading.Event()
        self._space = StoreSpace(store, block_bytes)
        self.worker = TransferWorker(
            cache, self._space, bandwidth=bandwidth, tier="disk", on_report=self.has_reports.set, tally=store.tally
        )
        store.on_change = self.has_reports.set
        self._epoch = store.epoch  #: epoch at which the next step's saves are decided

    def poll(self) -> StoreChanges | None:
        """Poll the store before each step, whose saves were decided before the deletions that this returns."""
        self._epoch = self.store.epoch
        return self.store.poll()

    def submit(self, transfers: Sequence[BlockTransfer], *, must_code: bool = False) -> Done:
        """Submit transfers (`TransferWorker.submit`). `must_code`: see `StoredBlock`."""
        codes = must_code or self.always_codes
        self._space.announce((each for each in transfers if each.kind == "save"), self._epoch, codes)
        return self.worker.submit(transfers)

    def apply_requests(self, out: SchedulerOutput) -> None:
        """Pass a step's claims and deletions to the store."""
        for key in out.dropped_claims:  # before new ones: a claim may be asked for again
            self.store.drop_claim(key)
        for key, patience_s in out.claims:
            self.store.claim(key, patience_s)
        if out.invalidated:
            try:
                self.store.delete(out.invalidated)
            except (OSError, ValueError) as error:
                logger.warning("kv store: blocks with non-finite content could not be deleted: %s", error)
