"""The array of all KV blocks, and operations on whole blocks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from quire.attention.interface import KVLayout, LayerAttention
from quire.ops.arrays import Array, DType, as_numpy, is_numpy, name_of, numpy_dtype, torch_dtype
from quire.outputs import BlockDifference
from quire.system.pages import new_zeros, return_memory


def new_rows(num_rows: int, size: int, dtype: DType, device: str, *, is_sparse: bool = False) -> Array:
    """Return zeros, [num_rows, size]: numpy's in main memory, where pages take memory only once written, else a tensor
    on the device."""
    if device == "cpu":
        return new_zeros((num_rows, size), numpy_dtype(name_of(dtype)), is_sparse=is_sparse)
    import torch

    return torch.zeros((num_rows, size), dtype=torch_dtype(name_of(dtype)), device=device)


class KVCache:
    """`num_blocks` blocks in one array, `[num_blocks, block_numel]`: numpy's in main memory, else a tensor on the
    `device`. A `dtype` of either kind will do. Some memory of a sparse one can be returned."""

    def __init__(
        self, num_blocks: int, layout: KVLayout, dtype: DType, device: str = "cpu", *, is_sparse: bool = False
    ) -> None:
        self.layout = layout
        self.device = device
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
        values = self.blocks[block]
        array = values if is_numpy(values) else as_numpy(values.cpu())
        return array.view(f"u{array.itemsize}")
