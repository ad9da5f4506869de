"""The tensor of all KV blocks, and operations on whole blocks."""

from __future__ import annotations

import torch

from quire.attention.interface import KVLayout
from quire.ops.arrays import as_tensor, name_of, numpy_dtype
from quire.outputs import BlockDifference
from quire.system.pages import new_zeros

_BITS = {2: torch.int16, 4: torch.int32}  #: by bytes of a value


class KVCache:
    """`num_blocks` blocks in one tensor, `[num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]`."""

    def __init__(self, num_blocks: int, layout: KVLayout, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = layout
        self.tensor = _zeros(layout.shape(num_blocks), dtype, device)

    def clear(self, blocks: list[int]) -> None:
        """Zero blocks before use: attention multiplies slots past a sequence's end by zero, and 0 * NaN is NaN."""
        if blocks:
            self.tensor[self._index(blocks)] = 0

    def copy(self, src: list[int], dst: list[int]) -> None:
        """Copy whole blocks, all reads before all writes."""
        if src:
            self.tensor[self._index(dst)] = self.tensor[self._index(src)]

    def compare(self, first: int, second: int) -> BlockDifference | None:
        """Compare two blocks bit by bit; None if they are equal."""
        one, other = (self.tensor[block].view(_BITS[self.tensor.element_size()]) for block in (first, second))
        if torch.equal(one, other):
            return None
        differs = one != other  # [num_layers, 2, num_kv_heads, block_size, head_dim]
        layers = differs.flatten(1).any(1).nonzero()
        return BlockDifference(int(differs.sum()), differs.numel(), int(layers[0]))

    def _index(self, blocks: list[int]) -> torch.Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self.tensor.device)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; in main memory, pages take memory only once written."""
    if device.type == "cpu":
        return as_tensor(new_zeros(shape, numpy_dtype(name_of(dtype))))
    return torch.zeros(shape, dtype=dtype, device=device)
