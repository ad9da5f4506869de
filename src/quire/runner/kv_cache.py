"""The array of all KV blocks, and operations on whole blocks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from quire.attention.block_records import KV, STATES, BlockRecords
from quire.attention.interface import KVLayout, LayerAttention
from quire.ops.arrays import Array, DType, as_numpy, is_numpy, name_of, numpy_dtype, torch_dtype
from quire.outputs import BlockDifference, BlockTransfer
from quire.system.pages import new_zeros, return_memory


def new_rows(num_rows: int, size: int, dtype: DType, device: str, *, is_sparse: bool = False) -> Array:
    """Return zeros, [num_rows, size]: numpy's in main memory, where pages take memory only once written, else a tensor
    on the device."""
    if device == "cpu":
        return new_zeros((num_rows, size), numpy_dtype(name_of(dtype)), is_sparse=is_sparse)
    import torch

    return torch.zeros((num_rows, size), dtype=torch_dtype(name_of(dtype)), device=device)


def make_cache(
    num_ids: int, num_records: int, layout: KVLayout, dtype: DType, device: str, is_sparse: bool = False
) -> KVCache:
    """Return a cache of `num_ids` blocks; on a GPU, with states, in `num_records` records."""
    if layout.has_states and device != "cpu":
        return RecordCache(num_ids, num_records, layout, dtype, device)
    return KVCache(num_ids, layout, dtype, device, is_sparse=is_sparse)


class KVCache:
    """`num_blocks` blocks in one array, `[num_blocks, block_numel]`: numpy's in main memory, else a tensor on the
    `device`. A `dtype` of either kind will do. Some memory of a sparse one can be returned."""

    def __init__(
        self, num_blocks: int, layout: KVLayout, dtype: DType, device: str = "cpu", *, is_sparse: bool = False
    ) -> None:
        self.layout = layout
        self.device = device
        self.num_ids = num_blocks
        self.records: BlockRecords | None = None
        self.blocks = new_rows(*layout.shape(num_blocks), dtype, device, is_sparse=is_sparse)
        # numpy copies bytes, without arithmetic
        self._rows = self.blocks.view(np.uint8) if is_numpy(self.blocks) else self.blocks
        # States are written before they are read.
        self._cleared = slice(layout.thin_numel * self.blocks.itemsize if layout.has_states else None)

    def give_back(self, returned: Sequence[tuple[int, bool]]) -> None:
        """Return memory of blocks, which lose these values: all of it (True), or that of layers with a window."""
        for block, is_whole in returned:
            values = self.blocks[block, 0 if is_whole else self.layout.thin_numel :]
            assert is_numpy(values)
            return_memory(values)

    def prepare_loads(self, transfers: Iterable[BlockTransfer]) -> None:
        """Assign memory to blocks that loads will write."""

    def clear(self, blocks: list[int]) -> None:
        """Zero blocks before use: attention multiplies slots past a sequence's end by zero, and 0 * NaN is NaN."""
        if blocks:
            self._rows[blocks, self._cleared] = 0

    def clear_slots(self, slots: list[int]) -> None:
        """Zero the KV of single tokens, at block * block_size + offset, for the same reason."""
        size = self.layout.block_size
        for slot in slots:
            self.blocks[slot // size, self._slot_values[slot % size]] = 0

    @functools.cached_property
    def _slot_values(self) -> list[np.ndarray]:
        """The places in a block of each slot's values."""
        places = np.arange(self.layout.block_numel)[None]
        kept = [i for i, layer in enumerate(self.layout.layers) if isinstance(layer, LayerAttention)]
        parts = [part for index in kept for part in self.layout.parts(places, index)]
        size = self.layout.block_size
        return [np.unique(np.concatenate([part[0, :, at].ravel() for part in parts])) for at in range(size)]

    def read(self, blocks: list[int]) -> Array | None:
        """Return a copy of whole blocks, for `write`; None for none."""
        return self._rows[blocks] if blocks else None

    def write(self, blocks: list[int], values: Array | None) -> None:
        if values is not None:
            self._rows[blocks] = values

    def copy_states(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy the recurrent states of blocks to others, in order."""
        for source, target in moves:
            self._rows[target, self._cleared.stop :] = self._rows[source, self._cleared.stop :]

    def compare(self, first: int, second: int, is_whole: bool = True) -> BlockDifference | None:
        """Compare two blocks, or what thin ones have of them, bit by bit; None if they are equal."""
        end = None if is_whole else self.layout.thin_numel
        one, other = (self._bits(block)[:end] for block in (first, second))
        differs = (one != other).nonzero()[0]
        if not len(differs):
            return None
        return BlockDifference(len(differs), len(one), self.layout.layer_at(int(differs[0])))

    def _bits(self, block: int) -> np.ndarray:
        """Return a block in main memory, as integers."""
        values = self.blocks[block if self.records is None else self.records.held(block)]
        array = values if is_numpy(values) else as_numpy(values.cpu())
        return array.view(f"u{array.itemsize}").ravel()


class RecordCache(KVCache):
    """A cache on a GPU of a model with states: `blocks` are records, [num_records, layout.thin_numel]."""

    records: BlockRecords

    def __init__(self, num_ids: int, num_records: int, layout: KVLayout, dtype: DType, device: str) -> None:
        super().__init__(0, layout, dtype, device)
        self.num_ids, self.records = num_ids, BlockRecords(layout, num_ids, num_records)
        self.blocks = new_rows(num_records, layout.thin_numel, dtype, device)

    def give_back(self, returned: Sequence[tuple[int, bool]]) -> None:
        for block, is_whole in returned:
            self.records.release(block, slice(0 if is_whole else 1, None))

    def prepare_loads(self, transfers: Iterable[BlockTransfer]) -> None:
        for each in transfers:
            self.records.hold(each.dst, slice(len(each.records) or 1))

    def clear(self, blocks: list[int]) -> None:
        if blocks:
            self.blocks[[int(self.records.hold(block, KV)[0]) for block in blocks]] = 0

    def clear_slots(self, slots: list[int]) -> None:
        size = self.layout.block_size
        super().clear_slots([int(self.records.of[slot // size, 0]) * size + slot % size for slot in slots])

    def read(self, blocks: list[int]) -> Any:
        return [self.blocks[self.records.held(block)] for block in blocks]

    def write(self, blocks: list[int], values: Any) -> None:
        for block, each in zip(blocks, values, strict=True):
            self.blocks[self.records.hold(block, slice(len(each)))] = each

    def copy_states(self, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.blocks[self.records.hold(target, STATES)] = self.blocks[self.records.of[source, STATES]]
