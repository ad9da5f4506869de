"""Where the blocks of a cache on a GPU are, for models with recurrent states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quire.attention.interface import AttentionBatch, KVLayout

KV, STATES = slice(1), slice(1, None)  #: parts of a block


class BlockRecords:
    """Assigns records, rows of equal size, to blocks: one to a block's KV, and others, anywhere, to its states. So a
    thin block takes one, though a GPU returns no pages. The scheduler's pool counts them."""

    def __init__(self, layout: KVLayout, num_ids: int, num_records: int) -> None:
        self.of = np.full((num_ids, layout.num_records), -1, np.int32)  #: by block and part; -1: none
        self._free = list(range(num_records - 1, -1, -1))

    def hold(self, block: int, parts: slice) -> np.ndarray:
        """Return the records of parts; those without one get it."""
        records = self.of[block, parts]
        for at in np.flatnonzero(records < 0):
            records[at] = self._free.pop()
        return records

    def release(self, block: int, parts: slice) -> None:
        records = self.of[block, parts]
        self._free += records[records >= 0].tolist()
        records[:] = -1

    def held(self, block: int) -> np.ndarray:
        """Return the records that a block has."""
        return self.of[block][self.of[block] >= 0]

    def locate(self, batch: AttentionBatch, block_size: int) -> AttentionBatch:
        """Return a batch with records in place of blocks. Calibration reads blocks without any: the first one's."""
        blocks, offsets = np.divmod(batch.slot_mapping, block_size)
        tables, of_slots = (np.maximum(self.of[each, 0], 0) for each in (batch.block_tables, blocks))
        slots = np.where(blocks < 0, -1, of_slots.astype(np.int64) * block_size + offsets)
        return replace(batch, block_tables=tables, slot_mapping=slots)
