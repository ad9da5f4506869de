"""Paged attention in plain torch, for CPU and CUDA: the reference for other kernels. All but prompts without context
first gather their blocks; decodes are batched by similar length."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, StateRule
from quire.attention.states import CacheStates
from quire.ops.arrays import as_numpy

_MAX_PADDING = 1.25  # longest over shortest sequence of a bucket, in blocks


@dataclass(slots=True)
class _Part:
    """Decodes of similar length, or one prompt: `num_queries` of each sequence, with equal numbers of blocks."""

    rows: torch.Tensor  #: [num_seqs * num_queries] rows of q
    blocks: torch.Tensor  #: [num_seqs * num_blocks]
    positions: torch.Tensor  #: [num_seqs, num_queries, 1]
    num_queries: int
    is_whole: bool  #: a prompt without context
    masks: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)  #: by window and number of keys


class TorchAttention:
    """See `AttentionBackend`."""

    def __init__(self, cache: torch.Tensor, layout: KVLayout) -> None:
        self.layout = layout
        self.device = cache.device
        self.dtype = cache.dtype
        attending = [index for index, layer in enumerate(layout.layers) if isinstance(layer, LayerAttention)]
        self._parts = {index: layout.parts(cache, index) for index in attending}
        self._states = CacheStates(as_numpy(cache), layout) if layout.has_states else None
        # For one query in bfloat16 on a CPU, torch's fused attention takes three times as long as two products.
        self._is_fused = self.device.type != "cpu" or self.dtype == torch.float32
        self._stored = self._blocks = self._offsets = torch.empty(0, dtype=torch.int64)
        self._steps: list[_Part] = []

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        if self._states is not None:
            self._states.plan(batch)
        slots = batch.slot_mapping
        stored = np.flatnonzero(slots >= 0)
        self._stored = self._to_device(stored)
        self._blocks, self._offsets = map(self._to_device, np.divmod(slots[stored], self.layout.block_size))
        decodes = np.flatnonzero(batch.query_lens == 1)
        prompts = np.flatnonzero(batch.query_lens > 1)
        self._steps = [self._plan_part(batch, seqs) for seqs in (*self._buckets(batch, decodes), *prompts[:, None])]

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _buckets(self, batch: AttentionBatch, seqs: np.ndarray) -> list[np.ndarray]:
        num_blocks = -(-batch.seq_lens[seqs] // self.layout.block_size)
        order = np.argsort(num_blocks, kind="stable")
        seqs, num_blocks = seqs[order], num_blocks[order]
        buckets, at = [], 0
        while at < len(seqs):
            most = max(num_blocks[at] * _MAX_PADDING, num_blocks[at] + 2)
            end = int(np.searchsorted(num_blocks, most, side="right"))
            buckets.append(seqs[at:end])
            at = end
        return buckets

    def _plan_part(self, batch: AttentionBatch, seqs: np.ndarray) -> _Part:
        first, num_queries = batch.query_start_loc[seqs], int(batch.query_lens[seqs[0]])
        lens = batch.seq_lens[seqs]
        own = -(-lens // self.layout.block_size)
        tables = batch.block_tables[seqs, : own.max()]
        # Pad with the sequence's own first block: 0 times a NaN in a foreign block would be NaN.
        tables = np.where(np.arange(own.max()) < own[:, None], tables, tables[:, :1]).astype(np.int64)
        positions = lens[:, None] - num_queries + np.arange(num_queries)
        rows = first[:, None] + np.arange(num_queries)
        return _Part(
            self._to_device(rows.reshape(-1)),
            self._to_device(tables.reshape(-1)),
            self._to_device(positions[..., None]),
            num_queries,
            num_queries > 1 and bool(lens[0] == num_queries),
        )

    # -- a layer -----------------------------------------------------------------------------------------------------

    def attend(
        self,
        layer_index: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | StateRule | None = None,
    ) -> torch.Tensor:
        if callable(sinks):
            assert self._states is not None
            return sinks(self._states[layer_index], q, k, v)
        layer = self.layout.layers[layer_index]
        assert isinstance(layer, LayerAttention)
        keys, values = self._parts[layer_index]  # [num_blocks, num_kv_heads, block_size, dim]
        for part, new in ((keys, k), (values, v)):
            if new is not None:
                part[self._blocks, :, self._offsets] = new.index_select(0, self._stored)
        out = torch.empty((len(q), layer.num_heads, layer.value_dim), dtype=q.dtype, device=q.device)
        shape = (layer.num_kv_heads, layer.num_heads // layer.num_kv_heads)
        for step in self._steps:
            if k is None or not step.is_whole:
                own_keys, own_values = (self._gather(part, step) for part in (keys, values))
            else:
                new_keys = k.index_select(0, step.rows)
                new_values = new_keys[..., : layer.value_dim] if v is None else v.index_select(0, step.rows)
                own_keys, own_values = new_keys.transpose(0, 1)[None], new_values.transpose(0, 1)[None]
            own = q.index_select(0, step.rows).view(-1, step.num_queries, *shape, layer.head_dim)
            attended = self._attend(
                layer,
                own.permute(0, 2, 3, 1, 4),  # [num_seqs, num_kv_heads, groups, num_queries, head_dim]
                own_keys[:, :, None].expand(-1, -1, shape[1], -1, -1),
                own_values[:, :, None].expand(-1, -1, shape[1], -1, -1),
                self._mask(step, layer.window, own_keys.shape[2]),
                sinks,
            )
            out[step.rows] = attended.permute(0, 3, 1, 2, 4).reshape(-1, layer.num_heads, layer.value_dim)
        return out

    @staticmethod
    def _gather(part: torch.Tensor, step: _Part) -> torch.Tensor:
        """Return keys or values of a step's sequences: [num_seqs, num_kv_heads, num_keys, dim]."""
        found = part.index_select(0, step.blocks).view(len(step.positions), -1, *part.shape[1:])
        return found.transpose(1, 2).flatten(2, 3)

    def _mask(self, step: _Part, window: int, num_keys: int) -> torch.Tensor:
        """Return what is added to the scores: [num_seqs, 1, 1, num_queries, num_keys]."""
        if (window, num_keys) not in step.masks:
            at, positions = torch.arange(num_keys, device=self.device), step.positions
            is_hidden = at > positions  # [num_seqs, num_queries, num_keys]
            if window:
                is_hidden |= at <= positions - window
            mask = torch.zeros(is_hidden.shape, dtype=self.dtype, device=self.device)
            step.masks[window, num_keys] = mask.masked_fill_(is_hidden, -torch.inf)[:, None, None]
        return step.masks[window, num_keys]

    def _attend(
        self,
        layer: LayerAttention,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend with q, [num_seqs, num_kv_heads, groups, num_queries, head_dim], to as many heads of keys."""
        if not layer.softcap and sinks is None and (self._is_fused or q.shape[3] > 1):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=layer.scale)
        scores = torch.matmul(q * layer.scale, k.transpose(-1, -2))
        if layer.softcap:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        scores = scores + mask
        if sinks is not None:
            sink = sinks.view(1, *q.shape[1:3], 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.softmax(torch.cat((scores, sink.to(scores.dtype)), -1), -1, dtype=torch.float32)[..., :-1]
        else:
            weights = torch.softmax(scores, -1, dtype=torch.float32)
        return torch.matmul(weights.to(v.dtype), v)
