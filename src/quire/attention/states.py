"""Recurrent states of layers that keep no KV: a sequence's state lies in the block of its last token."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from quire.attention.interface import AttentionBatch, KVLayout, LayerState
from quire.kernels.structure import address, structure
from quire.outputs import state_ends
from quire.system.threads import num_threads

_StatePlan = structure("QuireStatePlan", "int64 num_runs", "pointer runs", "int64 block_stride num_threads")


def sequence_runs(batch: AttentionBatch, block_size: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield the runs of each sequence (`StatePlan`)."""
    draft_block = batch.first_draft_block
    rows, lens = batch.query_start_loc.tolist(), batch.seq_lens.tolist()
    drafts = [0] * len(lens) if batch.num_drafts is None else batch.num_drafts.tolist()
    for table, row, next_row, end, num_drafts in zip(batch.block_tables, rows, rows[1:], lens, drafts, strict=False):
        runs: list[tuple[int, int, int, int]] = []
        at = end - (next_row - row)
        end -= num_drafts
        source = int(table[(at - 1) // block_size]) if at else -1
        for stop in state_ends(at, end, block_size):
            target = int(table[(stop - 1) // block_size])
            runs.append((row, row + stop - at, source, target))
            row, at, source = row + stop - at, stop, target
        for draft_row in range(row, next_row):
            runs.append((draft_row, draft_row + 1, source, draft_block))
            source, draft_block = draft_block, draft_block + 1
        yield runs


class StatePlan:
    """Where the states of a step are read and written, for all layers: by run of tokens of a sequence, in order.

    `runs` is int64 [num_runs, 4]: first row; row after the last; block with the state before, -1 for a new sequence
    (zeros); block for the state after. The runs of a sequence end at `state_ends` and after each draft, and each reads
    what the one before it has written.
    """

    def __init__(self, block_stride: int, block_size: int) -> None:
        self._block_size = block_size
        self._memory = np.empty((16, 4), np.int64)
        self._struct = _StatePlan(block_stride=block_stride, runs=address(self._memory))
        self.address = ctypes.addressof(self._struct)  #: for kernels; it stays

    @property
    def runs(self) -> np.ndarray:
        return self._memory[: self._struct.num_runs]

    @classmethod
    def of_text(cls, num_tokens: int) -> StatePlan:
        """Return the plan of one whole text, whose state is written to the first and only block."""
        plan = cls(0, max(1, num_tokens))
        plan._set([(0, num_tokens, -1, 0)])
        return plan

    def plan(self, batch: AttentionBatch) -> None:
        self._set([run for runs in sequence_runs(batch, self._block_size) for run in runs])

    def _set(self, runs: list[tuple[int, int, int, int]]) -> None:
        if len(runs) > len(self._memory):
            self._memory = np.empty((2 * len(runs), 4), np.int64)
            self._struct.runs = address(self._memory)
        self._struct.num_runs, self._struct.num_threads = len(runs), num_threads()
        self.runs[:] = runs


class LayerStates:
    """The states of one layer by block: `memory` is float32 [num_blocks, num_floats]."""

    def __init__(self, blocks: np.ndarray, start: int, num_floats: int, plan: StatePlan) -> None:
        """`blocks`: the cache; the states begin at value `start` of each block."""
        first = start * blocks.itemsize
        self.memory = blocks.view(np.uint8)[:, first : first + 4 * num_floats].view(np.float32)
        self.plan = plan


class CacheStates:
    """The states of all layers that have one, in a cache."""

    def __init__(self, blocks: np.ndarray, layout: KVLayout) -> None:
        self._plan = StatePlan(blocks.strides[0], layout.block_size) if layout.has_states else None
        self._of_layer = {
            index: LayerStates(blocks, layout.starts[index], layer.num_floats, self._plan)
            for index, layer in enumerate(layout.layers)
            if isinstance(layer, LayerState) and self._plan is not None
        }

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare a step."""
        if self._plan is not None:
            self._plan.plan(batch)

    def __getitem__(self, layer_index: int) -> LayerStates:
        return self._of_layer[layer_index]
