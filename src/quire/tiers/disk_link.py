"""An engine's link to the disk tier: the worker that moves blocks, the store that they lie in, and news of both."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence

import torch

from quire.outputs import BlockTransfer, SchedulerOutput, StoreChanges
from quire.tiers.store.block_store import BlockStore, StoredBlock
from quire.tiers.streams import Done
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")


class StoreSpace:
    """A block store as a `SwapSpace`: it has no slots, and finds blocks by key."""

    is_memory = False
    num_slots = 0

    def __init__(self, store: BlockStore, block_bytes: int) -> None:
        self.store = store
        self.block_bytes = block_bytes
        self._announced: dict[bytes, StoredBlock] = {}  #: by key, what is about to be written

    def announce(self, saves: Iterable[BlockTransfer], epoch: int) -> None:
        """Tell what is saved with blocks that will be written, and of which epoch the decision is."""
        for save in saves:
            assert save.key is not None
            self._announced[save.key] = StoredBlock(save.key, save.parent, save.cost_s, epoch)

    def write(self, slots: list[int], keys: list[bytes], blocks: torch.Tensor) -> list[int]:
        return self.store.write([self._announced.pop(key) for key in keys], blocks)

    def read(self, slots: list[int], keys: list[bytes], into: torch.Tensor | Sequence[memoryview]) -> list[int]:
        return self.store.read(keys, into)

    def close(self) -> None:
        self.store.close()


class DiskLink:
    """Args:
    cache: `[num_blocks, ...]`, contiguous.
    store: used by this link only.
    block_bytes: of one block.
    bandwidth: bytes a second; see `TransferWorker`.

    Attributes:
        news: set when the worker has reports, or the store has changes.
    """

    def __init__(
        self, cache: torch.Tensor, store: BlockStore, block_bytes: int, *, bandwidth: float | None = None
    ) -> None:
        self.store = store
        self.news = threading.Event()
        self._space = StoreSpace(store, block_bytes)
        self.worker = TransferWorker(cache, self._space, bandwidth=bandwidth, tier="disk", on_report=self.news.set)
        store.on_change = self.news.set
        self._epoch = store.epoch  #: when the saves of the step that is being made were decided

    def poll(self) -> StoreChanges | None:
        """See `BlockStore.poll`. To be called once a step, before the step is made.

        A step's saves were decided at the end of the step before: without regard to deletions that this tells of.
        """
        self._epoch = self.store.epoch
        return self.store.poll()

    def submit(self, transfers: Sequence[BlockTransfer]) -> Done:
        """See `TransferWorker.submit`."""
        self._space.announce((transfer for transfer in transfers if transfer.kind == "save"), self._epoch)
        return self.worker.submit(transfers)

    def tell(self, out: SchedulerOutput) -> None:
        """Tell the store what a step has for it beside blocks."""
        for key in out.dropped_claims:  # before the new ones: one may be asked for again
            self.store.drop_claim(key)
        for key, patience_s in out.claims:
            self.store.claim(key, patience_s)
        if out.invalidated:
            try:
                self.store.delete(out.invalidated)
            except (OSError, ValueError) as error:
                logger.warning("kv store: blocks that are not numbers could not be deleted: %s", error)
