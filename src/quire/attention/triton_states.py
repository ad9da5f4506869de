"""Recurrent states on a GPU: the plan of a step for our Triton kernels (`kernels/triton/states.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from quire.attention.block_records import STATES, BlockRecords
from quire.attention.interface import AttentionBatch, KVLayout
from quire.attention.states import sequence_runs


@dataclass(frozen=True)
class TritonStates:
    """The states of one layer, from `start` on in those of a sequence, and the planned step."""

    memory: torch.Tensor  #: float32 [num_records, record size]
    records: dict[str, int]  #: of a state, as the kernels' constants
    start: int
    plan: torch.Tensor
    at: int
    groups: list[tuple[int, int]]  #: first and number of sequences that do not read each other's states, in order


class StatePlanner:
    """Plans steps over a cache of records. Its part of a plan is described in the kernels' file."""

    HEADER = 4

    def __init__(self, cache: torch.Tensor, layout: KVLayout, records: BlockRecords) -> None:
        self._layout, self._records = layout, records
        self._memory, self._itemsize = cache.view(torch.float32), cache.itemsize
        self.groups: list[tuple[int, int]] = []

    def plan(self, batch: AttentionBatch, start: int) -> tuple[list[int], list[np.ndarray]]:
        """Return the header and the parts of the plan, which begin at `start`. States that the step leaves get
        records."""
        number_of: dict[int, int] = {}  # of tables, by block
        sequences, runs = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
        self.groups, read, written = [], set[int](), set[int]()
        first = 0
        for index, own in enumerate(sequence_runs(batch, self._layout.block_size)):
            source, targets = own[0][2], [target for *_, target in own]
            if source in written or not read.union(written).isdisjoint(targets):
                self.groups.append((first, index - first))
                first, read, written = index, set(), set()
            read.add(source)
            written.update(targets)
            before = -1 if source < 0 else number_of.setdefault(source, len(number_of))
            sequences.append((len(runs), len(runs) + len(own), before))
            for row, end, _, target in own:
                self._records.hold(target, STATES)
                runs.append((row, end, number_of.setdefault(target, len(number_of))))
        self.groups.append((first, len(sequences) - first))
        parts = [np.array(sequences), np.array(runs), np.maximum(self._records.of[[*number_of], STATES], 0)]
        starts = start + np.cumsum([0, *(each.size for each in parts[:2])])
        return [len(sequences), *starts.tolist()], parts

    def of_layer(self, index: int, plan: torch.Tensor, at: int, num_rows: int | None) -> TritonStates:
        """Return a layer's states. `num_rows`: of a recordable step, whose launches may depend on nothing else."""
        layout = self._layout
        start = (layout.starts[index] - layout.thin_numel) * self._itemsize // 4
        groups = self.groups if num_rows is None else [(0, num_rows)]
        records = {"RECORD": self._memory.shape[1], "NUM_RECORDS": layout.num_records - 1}
        return TritonStates(self._memory, records, start, plan, at, groups)
