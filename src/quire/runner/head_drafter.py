"""Propose draft tokens with the draft head of the served model's checkpoint (`DraftHead`)."""

from __future__ import annotations

import numpy as np

from quire.attention.interface import AttentionBackend
from quire.models.draft_head import DraftHead
from quire.ops.arrays import Array, as_tensor, is_numpy
from quire.outputs import SchedulerOutput
from quire.runner.batch import Batch, BlockWork, InputBatch
from quire.runner.drafter import Drafter
from quire.runner.kv_cache import KVCache, new_rows


class HeadDrafter(Drafter):
    """Runs a draft head. The served model's hidden states are kept by KV slot, so blocks that later requests find in
    memory have them, and the head computes its KV only once a sequence drafts. Those of blocks from other tiers are
    zeros, so the head guesses worse there, as it may at the end of a block that texts share, whose entry has the next
    token of one of them. For each further draft token, its own hidden states take the served model's place."""

    lag = 1
    reads_hidden_states = True

    def __init__(self, head: DraftHead, attention: AttentionBackend, vocab_size: int, cache: KVCache) -> None:
        super().__init__(head, attention, vocab_size, cache)
        self._head = head
        num_blocks, size = len(cache.blocks), head.config.hidden_size
        hidden = new_rows(num_blocks * cache.layout.block_size, size, head.dtype, head.device)
        self._hidden = hidden if is_numpy(head.dtype) else as_tensor(hidden)
        self._of_blocks = self._hidden.reshape(num_blocks, -1, size)

    def apply(self, work: BlockWork, out: SchedulerOutput) -> None:
        super().apply(work, out)
        if work.copy_dst:
            self._of_blocks[work.copy_dst] = self._of_blocks[work.copy_src]
        if loaded := [each.dst for each in out.transfers if each.kind == "load"]:
            self._of_blocks[loaded] = 0

    def end_step(self, batch: Batch, hidden: Array) -> None:
        super().end_step(batch, hidden)
        self._hidden[self._to_device(batch.attention.slot_mapping)] = hidden

    def _run(self, inputs: InputBatch, batch: Batch, rows: Array | None) -> Array:
        positions, query_lens = batch.positions, batch.attention.query_lens
        ids = inputs.token_ids[np.repeat(batch.rows, query_lens), positions + 1].astype(np.int64)
        hidden = self._hidden[self._to_device(batch.attention.slot_mapping)]
        arrays = self._to_device(ids), self._to_device(positions), hidden
        return self._head.from_hidden(*arrays, self._attention.attend, rows=rows)

    def _keep(self, inputs: InputBatch, batch: Batch, hidden: Array, number: int) -> None:
        if number <= 0:  # else computed from the head's own hidden states
            super()._keep(inputs, batch, hidden, number)
        if number >= 0:  # verification writes the served model's again
            self._hidden[self._to_device(inputs.slots(batch.rows, batch.attention.seq_lens))] = hidden
