"""Propose draft tokens from the served model's hidden states (`HiddenStateReader`)."""

from __future__ import annotations

import numpy as np

from quire.attention.interface import AttentionBackend
from quire.models.draft_head import HiddenStateReader
from quire.ops.arrays import Array, as_tensor, is_numpy
from quire.outputs import SchedulerOutput
from quire.runner.batch import Batch, BlockWork, InputBatch
from quire.runner.drafter import Drafter
from quire.runner.kv_cache import KVCache, new_rows


class HeadDrafter(Drafter):
    """Runs a draft head, whose blocks of KV have the ids of the `served` model's, or an assistant, without KV. The
    served model's hidden states are kept by KV slot, so blocks that later requests find in memory have them, and the
    head computes its KV only once a sequence drafts. Those of blocks from other tiers are zeros, so the head guesses
    worse there, as it may at the end of a block that texts share, whose entry has the next token of one of them. For
    each further draft token, its own hidden states take the served model's place."""

    lag = 1
    reads_hidden_states = True

    def __init__(
        self,
        head: HiddenStateReader,
        attention: AttentionBackend,
        vocab_size: int,
        served: KVCache,
        cache: KVCache | None = None,
    ) -> None:
        super().__init__(head, attention, vocab_size, cache)
        self._head = head
        num_blocks, size = served.num_ids, head.fc.in_features // 2
        hidden = new_rows(num_blocks * served.layout.block_size, size, head.dtype, head.device)
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

    def _compute(
        self, inputs: InputBatch, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, number: int = -1
    ) -> Array:
        ahead = self._ahead(number)
        return super()._compute(inputs, rows, starts - ahead, ends - ahead, number)

    def _ahead(self, number: int) -> int:
        """Return how many positions a draft is ahead of the KV that it sees."""
        return max(0, number) if self._head.reads_served_kv else 0

    def _run(self, inputs: InputBatch, batch: Batch, rows: Array | None, number: int) -> Array:
        token_rows, at = np.repeat(batch.rows, batch.attention.query_lens), batch.positions + self._ahead(number)
        arrays = (
            self._to_device(inputs.token_ids[token_rows, at + 1].astype(np.int64)),
            self._to_device(batch.positions + self._head.reads_served_kv),
            self._hidden[self._to_device(inputs.slots(token_rows, at))],
        )
        return self._head.from_hidden(*arrays, self._attention.attend, rows=rows)

    def _keep(self, inputs: InputBatch, batch: Batch, hidden: Array, number: int) -> None:
        if number <= 0:  # else computed from the head's own hidden states
            super()._keep(inputs, batch, hidden, number)
        if number >= 0:  # verification writes the served model's again
            slots = inputs.slots(batch.rows, batch.attention.seq_lens + self._ahead(number))
            self._hidden[self._to_device(slots)] = self._head.next_hidden(hidden)
