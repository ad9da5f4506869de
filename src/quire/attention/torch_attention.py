"""Paged attention in plain torch, for CPU and CUDA: the reference for other kernels. All but prompts without context
first gather their blocks; decodes are batched by similar length, and on a CPU by cache size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from quire.attention.interface import AttentionBatch, KVLayout

_MAX_PADDING = 1.25  # longest over shortest sequence of a bucket, in blocks
_CPU_GATHER_BYTES = 3 * 2**20  # of K at once: 2 to 7 times as fast as 20 MB at once (float32, Zen 4)


@dataclass(slots=True)
class _Decode:
    """Decodes of similar length."""

    rows: torch.Tensor  #: [B] rows of q
    gather: torch.Tensor  #: [B * num_kv_heads * blocks] rows of `_parts` for K of layer 0
    mask: torch.Tensor  #: [B, 1, 1, blocks * block_size], added to the scores
    num_blocks: int


@dataclass(slots=True)
class _Prefill:
    """Several queries of one sequence."""

    start: int  #: first row of q
    end: int
    gather: torch.Tensor | None  #: None without context in the cache
    mask: torch.Tensor | None  #: [queries, context], added to the scores
    num_blocks: int


class TorchAttention:
    """See `AttentionBackend`."""

    def __init__(self, cache: torch.Tensor, layout: KVLayout, num_heads: int) -> None:
        self.layout = layout
        self.device = cache.device
        self.dtype = cache.dtype
        self.num_groups = num_heads // layout.num_kv_heads
        # Rows by slot and head for writing, by block and head for reading. A layer is an offset in rows.
        self._slots = cache.view(-1, layout.head_dim)
        self._parts = cache.view(-1, layout.block_size * layout.head_dim)
        self._write = torch.empty(0, dtype=torch.int64)
        self._padding: torch.Tensor | None = None
        is_cpu = self.device.type == "cpu"
        part_bytes = self._parts[0].nbytes * layout.num_kv_heads
        self._max_gather = max(1, _CPU_GATHER_BYTES // part_bytes) if is_cpu else None  #: blocks
        # For one query in bfloat16 on a CPU, torch's fused attention takes three times as long as two products.
        self._attend_batch = _attend_by_products if is_cpu and self.dtype != torch.float32 else _attend_fused
        self._decodes: list[_Decode] = []
        self._prefills: list[_Prefill] = []

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        layout = self.layout
        slots = batch.slot_mapping
        is_padding = slots < 0
        self._padding = self._to_device(np.flatnonzero(~is_padding)) if is_padding.any() else None
        slots = slots[~is_padding]
        blocks, offsets = np.divmod(slots, layout.block_size)
        heads = np.arange(layout.num_kv_heads)
        part = self._part_index(blocks[:, None], heads[None, :])  # [num_tokens, num_kv_heads]
        self._write = self._to_device((part * layout.block_size + offsets[:, None]).reshape(-1))
        query_lens = batch.query_lens
        self._decodes = self._bucket(batch, np.flatnonzero(query_lens == 1))
        self._prefills = [self._plan_prefill(batch, int(i)) for i in np.flatnonzero(batch.query_lens > 1)]

    def _part_index(self, blocks: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Return the rows of `_parts` with K of layer 0."""
        layout = self.layout
        index: np.ndarray = blocks.astype(np.int64) * (layout.num_layers * 2 * layout.num_kv_heads) + heads
        return index

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _bucket(self, batch: AttentionBatch, seqs: np.ndarray) -> list[_Decode]:
        num_blocks = -(-batch.seq_lens[seqs] // self.layout.block_size)
        order = np.argsort(num_blocks, kind="stable")
        seqs, num_blocks = seqs[order], num_blocks[order]
        decodes = []
        at = 0
        while at < len(seqs):
            end = int(np.searchsorted(num_blocks, max(num_blocks[at] * _MAX_PADDING, num_blocks[at] + 2), side="right"))
            if self._max_gather is not None:
                end = min(end, at + max(1, self._max_gather // int(num_blocks[end - 1])))
            decodes.append(self._plan_decode(batch, seqs[at:end], int(num_blocks[end - 1])))
            at = end
        return decodes

    def _plan_decode(self, batch: AttentionBatch, seqs: np.ndarray, num_blocks: int) -> _Decode:
        layout = self.layout
        own_blocks = -(-batch.seq_lens[seqs] // layout.block_size)
        tables = batch.block_tables[seqs, :num_blocks]
        # Pad with the sequence's own first block: 0 times a NaN in a foreign block would be NaN.
        tables = np.where(np.arange(num_blocks) < own_blocks[:, None], tables, tables[:, :1])
        heads = np.arange(layout.num_kv_heads)
        gather = self._part_index(tables[:, None, :], heads[None, :, None])  # [B, num_kv_heads, blocks]
        lens = self._to_device(batch.seq_lens[seqs])
        is_past_end = torch.arange(num_blocks * layout.block_size, device=self.device) >= lens[:, None]
        mask = torch.zeros(is_past_end.shape, dtype=self.dtype, device=self.device).masked_fill_(
            is_past_end, -torch.inf
        )
        rows = self._to_device(batch.query_start_loc[seqs])
        return _Decode(rows, self._to_device(gather.reshape(-1)), mask[:, None, None, :], num_blocks)

    def _plan_prefill(self, batch: AttentionBatch, i: int) -> _Prefill:
        layout = self.layout
        start, end = int(batch.query_start_loc[i]), int(batch.query_start_loc[i + 1])
        seq_len = int(batch.seq_lens[i])
        if seq_len == end - start:
            return _Prefill(start, end, None, None, 0)
        num_blocks = -(-seq_len // layout.block_size)
        heads = np.arange(layout.num_kv_heads)
        gather = self._part_index(batch.block_tables[i, None, :num_blocks], heads[:, None])  # [num_kv_heads, blocks]
        positions = torch.arange(seq_len - (end - start), seq_len, device=self.device)
        is_later = torch.arange(num_blocks * layout.block_size, device=self.device) > positions[:, None]
        mask = torch.zeros(is_later.shape, dtype=self.dtype, device=self.device).masked_fill_(is_later, -torch.inf)
        return _Prefill(start, end, self._to_device(gather.reshape(-1)), mask, num_blocks)

    # -- a layer -----------------------------------------------------------------------------------------------------

    def attend(self, layer_index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        layout = self.layout
        first_k = layer_index * 2 * layout.num_kv_heads
        first_v = first_k + layout.num_kv_heads
        if self._padding is not None:
            self._store(first_k, k.index_select(0, self._padding))
            self._store(first_v, v.index_select(0, self._padding))
        else:
            self._store(first_k, k)
            self._store(first_v, v)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for decode in self._decodes:
            self._attend_decode(decode, first_k, first_v, q, out)
        for prefill in self._prefills:
            self._attend_prefill(prefill, first_k, first_v, q, k, v, out)
        return out

    def _store(self, first: int, x: torch.Tensor) -> None:
        rows = self._slots[first * self.layout.block_size :]
        rows.index_copy_(0, self._write, x.reshape(-1, self.layout.head_dim))

    def _attend_decode(self, decode: _Decode, first_k: int, first_v: int, q: torch.Tensor, out: torch.Tensor) -> None:
        layout = self.layout
        num_seqs = len(decode.rows)
        shape = (num_seqs, layout.num_kv_heads, decode.num_blocks * layout.block_size, layout.head_dim)
        k = self._parts[first_k:].index_select(0, decode.gather).view(shape)
        v = self._parts[first_v:].index_select(0, decode.gather).view(shape)
        # Query heads that share a KV head take the place of query positions.
        grouped = q.index_select(0, decode.rows).view(num_seqs, layout.num_kv_heads, self.num_groups, layout.head_dim)
        attended = self._attend_batch(grouped, k, v, decode.mask)
        out.index_copy_(0, decode.rows, attended.reshape(num_seqs, -1, layout.head_dim))

    def _attend_prefill(
        self, prefill: _Prefill, first_k: int, first_v: int,
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    ) -> None:  # fmt: skip
        layout = self.layout
        num_queries = prefill.end - prefill.start
        grouped = q[prefill.start : prefill.end].view(
            num_queries, layout.num_kv_heads, self.num_groups, layout.head_dim
        )
        if prefill.gather is None:
            keys = k[prefill.start : prefill.end].transpose(0, 1)  # [num_kv_heads, S, head_dim]
            values = v[prefill.start : prefill.end].transpose(0, 1)
        else:
            shape = (layout.num_kv_heads, prefill.num_blocks * layout.block_size, layout.head_dim)
            keys = self._parts[first_k:].index_select(0, prefill.gather).view(shape)
            values = self._parts[first_v:].index_select(0, prefill.gather).view(shape)
        expanded = (-1, self.num_groups, -1, -1)
        attended = F.scaled_dot_product_attention(
            grouped.permute(1, 2, 0, 3),  # [num_kv_heads, groups, queries, head_dim]
            keys[:, None].expand(expanded),
            values[:, None].expand(expanded),
            attn_mask=prefill.mask,
            is_causal=prefill.mask is None,
        )
        out[prefill.start : prefill.end] = attended.permute(2, 0, 1, 3).reshape(num_queries, -1, layout.head_dim)


def _attend_fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """q: [batch, heads, queries, head_dim]; k, v: [batch, heads, keys, head_dim]."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _attend_by_products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As `_attend_fused`, with only the softmax in float32."""
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + mask
    return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype), v)
