"""The interface of attention backends. The model calls `attend`, the runner `plan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quire.ops.arrays import Array


@dataclass(frozen=True)
class KVLayout:
    """Shape of the cache: [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], K before V. A block is
    contiguous, to move in one copy."""

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
    """The sequences of one step, flattened. Rows `query_start_loc[i]:query_start_loc[i + 1]` of q, k and v are the last
    of sequence i's `seq_lens[i]` tokens."""

    query_start_loc: np.ndarray  #: int64 [num_seqs + 1]
    seq_lens: np.ndarray  #: int64 [num_seqs]
    block_tables: np.ndarray  #: int32 [num_seqs, max_blocks]; entries past a sequence's blocks are not read
    slot_mapping: np.ndarray  #: int64 [num_tokens]: block * block_size + offset; -1 is padding

    @property
    def query_lens(self) -> np.ndarray:
        return np.diff(self.query_start_loc)


class AttentionBackend(Protocol):
    """Paged attention over one cache."""

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare a step, once for all layers."""
        ...

    def attend(self, layer_index: int, q: Array, k: Array, v: Array) -> Array:
        """Write k and v, [num_tokens, num_kv_heads, head_dim], to the cache of the original `layer_index`, and attend
        causally with q, [num_tokens, num_heads, head_dim], at scale head_dim ** -0.5. Returns the shape of q; q and k
        are rotated. All writes of a layer come before its reads, so sequences may share blocks that this step fills."""
        ...
