"""The interface of attention backends, and the layout of a KV block. The model calls `attend`, the runner `plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from quire.config import BlockWindow
from quire.ops.arrays import Array

StateRule = Callable[..., Array]
"""rule(states, q, k, v) -> output: computes all tokens of a step, and updates `states` (`LayerStates`)."""

_LARGEST_THIN = 0.75  # of a whole block: windows that save less are not worth it
_LINE = 64  # bytes


@dataclass(frozen=True)
class LayerAttention:
    """A layer's attention on this rank, and the KV that a block holds for it."""

    num_heads: int
    num_kv_heads: int
    head_dim: int  #: of queries and keys
    value_dim: int = 0  #: 0: head_dim
    scale: float = 0.0  #: of scores; 0: head_dim ** -0.5
    window: int = 0  #: number of last tokens that a query sees, itself included; 0: all
    softcap: float = 0.0  #: scores become softcap * tanh(score / softcap); 0: they stay
    has_latent: bool = False  #: values are the first `value_dim` features of the keys, and not stored
    reads_layer: int | None = None  #: the layer stores nothing, and reads the KV of this earlier one
    scale_size: int = 0  #: values of the cache before each key and value; 4 bytes, a float32 scale, with KV in 8 bits

    def __post_init__(self) -> None:
        object.__setattr__(self, "value_dim", self.value_dim or self.head_dim)
        object.__setattr__(self, "scale", self.scale or self.head_dim**-0.5)

    @property
    def token_size(self) -> int:
        """The number of values that a block holds for one token of this layer."""
        if self.reads_layer is not None:
            return 0
        return self.num_kv_heads * (self.key_size + (0 if self.has_latent else self.value_size))

    @property
    def key_size(self) -> int:
        """Values of the cache for a token's key of one head."""
        return self.scale_size + self.head_dim

    @property
    def value_size(self) -> int:
        """The same for a value."""
        return self.scale_size + self.value_dim


@dataclass(frozen=True)
class LayerState:
    """A layer without KV, with a recurrent state of float32 values per sequence (`states`)."""

    num_floats: int
    itemsize: int  #: bytes of a value of the cache
    window: ClassVar[int] = 0
    reads_layer: ClassVar[int | None] = None

    @property
    def state_size(self) -> int:
        """Values of the cache, in whole cache lines."""
        return -(-self.num_floats * 4 // _LINE) * _LINE // self.itemsize


class KVLayout:
    """Layout of the cache, [num_blocks, block_numel]: a block is contiguous, to move in one copy, and holds one part
    per layer: K, [num_kv_heads, block_size, key_size], then V, [num_kv_heads, block_size, value_size]; or a state.
    Parts that only layers with a window read come last, and states."""

    def __init__(self, layers: Sequence[LayerAttention | LayerState], block_size: int) -> None:
        self.layers = tuple(layers)
        self.block_size = block_size
        self.has_states = any(isinstance(layer, LayerState) for layer in layers)
        source_of = [index if layer.reads_layer is None else layer.reads_layer for index, layer in enumerate(layers)]
        far = {
            source
            for source, layer in zip(source_of, layers, strict=True)
            if isinstance(layer, LayerAttention) and (self.has_states or not layer.window)
        }
        start_of: dict[int, int] = {}
        end = self.thin_numel = 0  #: `thin_numel`: values of a block before the parts that have a window, and states
        for source in sorted(set(source_of), key=lambda source: (source not in far, source)):
            layer = self.layers[source]
            if isinstance(layer, LayerState):
                end = -(-end * layer.itemsize // _LINE) * _LINE // layer.itemsize
            start_of[source] = end
            end += layer.state_size if isinstance(layer, LayerState) else block_size * layer.token_size
            if source in far:
                self.thin_numel = end
        #: Records of a block in other tiers: equal ones, the first of which is what a thin block with states has.
        self.num_records = -(-end // self.thin_numel) if self.has_states and self.thin_numel else 1
        end = self.num_records * self.thin_numel if self.num_records > 1 else end
        self.starts: list[int] = [start_of[source] for source in source_of]  #: of the parts that the layers read
        self.block_numel = end  #: number of values in a block

    def window(self, num_step_tokens: int) -> BlockWindow | None:
        """Return what blocks need behind the windows, with steps of so many tokens; None if that is nearly all."""
        whole = BlockWindow.WHOLE
        thin = max(whole // 32 if not self.has_states else 1, -(-whole * self.thin_numel // self.block_numel))
        if self.has_states:
            return BlockWindow.with_states(self.num_records, thin)
        if thin > whole * _LARGEST_THIN:
            return None
        tokens = max(layer.window for layer in self.layers)
        return BlockWindow(tokens, thin, -(-(tokens + num_step_tokens) // self.block_size) + 1)

    @classmethod
    def uniform(cls, num_layers: int, num_kv_heads: int, block_size: int, head_dim: int, groups: int = 1) -> KVLayout:
        """Return the layout of equal layers with `groups` query heads per KV head."""
        return cls([LayerAttention(num_kv_heads * groups, num_kv_heads, head_dim)] * num_layers, block_size)

    def shape(self, num_blocks: int) -> tuple[int, int]:
        return (num_blocks, self.block_numel)

    def block_bytes(self, itemsize: int) -> int:
        return self.block_numel * itemsize

    def parts(self, blocks: Array, index: int) -> tuple[Array, Array]:
        """Return views of a layer's K and V in an array of blocks: [num_blocks, num_kv_heads, block_size, size]."""
        layer, size, start = self.layers[index], self.block_size, self.starts[index]
        assert isinstance(layer, LayerAttention)
        middle = start + layer.num_kv_heads * size * layer.key_size
        keys = blocks[:, start:middle].reshape(len(blocks), layer.num_kv_heads, size, layer.key_size)
        if layer.has_latent:
            return keys, keys[..., : layer.value_size]
        end = middle + layer.num_kv_heads * size * layer.value_size
        return keys, blocks[:, middle:end].reshape(len(blocks), layer.num_kv_heads, size, layer.value_size)

    def layer_at(self, offset: int) -> int:
        """Return the layer whose part holds a value of a block."""
        stored = [i for i, layer in enumerate(self.layers) if layer.reads_layer is None and self.starts[i] <= offset]
        return max(stored, key=self.starts.__getitem__)


@dataclass(frozen=True)
class AttentionBatch:
    """The sequences of one step, flattened. Rows `query_start_loc[i]:query_start_loc[i + 1]` of q, k and v are the last
    of sequence i's `seq_lens[i]` tokens, and the last `num_drafts[i]` of these are drafts. The recurrent state after
    the step's nth draft is left in the nth block from `first_draft_block` on."""

    query_start_loc: np.ndarray  #: int64 [num_seqs + 1]
    seq_lens: np.ndarray  #: int64 [num_seqs]
    block_tables: np.ndarray  #: int32 [num_seqs, max_blocks]; entries past a sequence's blocks are not read
    slot_mapping: np.ndarray  #: int64 [num_tokens]: block * block_size + offset; -1 is padding
    num_drafts: np.ndarray | None = None  #: int64 [num_seqs]; None without drafts
    first_draft_block: int = 0

    @cached_property
    def query_lens(self) -> np.ndarray:
        return self.query_start_loc[1:] - self.query_start_loc[:-1]


class AttentionBackend(Protocol):
    """Paged attention over one cache."""

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare a step, once for all layers."""
        ...

    def attend(
        self,
        layer_index: int,
        q: Array,
        k: Array | None,
        v: Array | None,
        sinks: Array | StateRule | None = None,
    ) -> Array:
        """Write k and v, [num_tokens, num_kv_heads, dim], to the cache of the original `layer_index`, and attend
        causally with q, [num_tokens, num_heads, head_dim]. Returns [num_tokens, num_heads, value_dim]; q and k are
        rotated. A layer with a latent has no v, and one that reads another layer's KV neither k nor v. `sinks`,
        [num_heads], are scores of a key without a value. All writes of a layer come before its reads, so sequences may
        share blocks that this step fills. A layer with a state has its rule in place of `sinks`, which computes the
        output of the three arrays."""
        ...
