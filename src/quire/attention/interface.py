"""The interface of attention backends, and the batch that a step gives them.

A backend owns the views into the KV cache that it needs; the model sees only `attend`, and the runner only `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KVLayout:
    """Shape of the cache: ``[num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]``, K before V.

    A block is one contiguous piece, so that moving it between tiers is one copy.
    """

    num_layers: int
    num_kv_heads: int
    block_size: int
    head_dim: int

    def shape(self, num_blocks: int) -> tuple[int, int, int, int, int, int]:
        return (num_blocks, self.num_layers, 2, self.num_kv_heads, self.block_size, self.head_dim)

    def block_bytes(self, itemsize: int) -> int:
        return self.num_layers * 2 * self.num_kv_heads * self.block_size * self.head_dim * itemsize


@dataclass(frozen=True)
class AttentionBatch:
    """The sequences of one step, flattened without padding.

    Sequence i owns rows ``query_start_loc[i]:query_start_loc[i + 1]`` of q, k and v; they are its last tokens:
    ``seq_lens[i]`` counts all of its tokens, these included.
    """

    query_start_loc: np.ndarray  #: int64 [num_seqs + 1]
    seq_lens: np.ndarray  #: int64 [num_seqs]
    block_tables: np.ndarray  #: int32 [num_seqs, max_blocks]; what lies past a sequence's own blocks is not read
    slot_mapping: np.ndarray  #: int64 [num_tokens]: block * block_size + offset; -1 is padding

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_start_loc)


class AttentionBackend(Protocol):
    """Paged attention over one cache."""

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare for a step: everything that is the same for all layers."""
        ...

    def attend(self, layer_index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write k and v to the cache, then attend, each query to its sequence's tokens up to itself.

        All writes of a layer come before its reads, so sequences may share blocks that this very step fills.

        Args:
            layer_index: the layer's original index.
            q: [num_tokens, num_heads, head_dim], rotated already.
            k, v: [num_tokens, num_kv_heads, head_dim].

        Returns:
            [num_tokens, num_heads, head_dim], scaled by ``head_dim ** -0.5``.
        """
        ...
