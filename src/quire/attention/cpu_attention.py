"""Paged attention by a kernel of our own that reads KV blocks where they lie; `kernels/csrc` is its source.

It writes K and V, and attends for all sequences: those that decode and, where the level multiplies the cache's dtype as
it is, prompts. That leaves bfloat16 prompts to torch at the levels that have to widen them.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from quire.attention.interface import AttentionBatch, KVLayout
from quire.attention.torch_attention import TorchAttention
from quire.kernels.recorder import call_kernel, new_output

_SPAN = 256  # keys of one query that one thread takes at once, as csrc/paged_attention.cpp has it
# Queries times heads of a group that share a tile of keys. Of prompts: the more, the less often it is packed, as long
# as there are tiles for all threads; of sequences that decode the least.
_TILE_ROWS, _LEAST_TILE_ROWS, _TILES_A_THREAD = 288, 96, 4
_SERIAL_ELEMENTS = 2**18  # of K and V that a layer's queries see: up to this one thread does not wait for others
_FUNCTIONS = {torch.float32: "quire_attend_float32", torch.bfloat16: "quire_attend_bfloat16"}


class _Plan(ctypes.Structure):
    """`QuirePlan` in csrc/paged_attention.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("block_stride", "num_kv_heads", "num_groups", "block_size", "head_dim")),
        ("scale", ctypes.c_float),
        ("num_threads", ctypes.c_int32),
        ("num_tokens", ctypes.c_int64),
        ("slot_mapping", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("table_stride", ctypes.c_int64),
        ("num_units", ctypes.c_int64),
        ("units", ctypes.c_void_p),
        ("num_merges", ctypes.c_int64),
        ("merges", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("partials", ctypes.c_void_p),
    )


class _Call(ctypes.Structure):
    """`QuireAttention` there."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("plan", "cache", "q", "k", "v", "out")),
        *((f"{name}_{axis}_stride", ctypes.c_int64) for name in ("q", "k", "v") for axis in ("token", "head")),
    )


class CpuAttention:
    """See `AttentionBackend`.

    Args:
        cache: the KV cache, shaped by `layout`, in main memory.
        num_heads: query heads; several of them share a K/V head (grouped-query attention).
        library: of one level.
        takes_prompts: whether the kernel computes them; None is where that was measured to be faster.
    """

    def __init__(
        self,
        cache: torch.Tensor,
        layout: KVLayout,
        num_heads: int,
        library: ctypes.CDLL,
        *,
        takes_prompts: bool | None = None,
    ) -> None:
        self.layout = layout
        self.dtype = cache.dtype
        self.cache = cache
        self._attend = getattr(library, _FUNCTIONS[cache.dtype])
        self._attend.restype = None
        self._layer_bytes = 2 * layout.num_kv_heads * layout.block_size * layout.head_dim * cache.element_size()
        self._num_heads = num_heads
        if takes_prompts is None:
            takes_prompts = cache.dtype == torch.float32 or bool(library.quire_has_bfloat16_products())
        self._prompts = None if takes_prompts else TorchAttention(cache, layout, num_heads)
        self._partials = torch.empty(0, dtype=torch.float32)
        self.is_recordable = False  #: whether the planned step is one kernel call a layer, and nothing else
        self._planned: tuple[np.ndarray, ...] = ()  # what the call points into
        self._plan = _Plan(
            block_stride=cache.stride(0),
            num_kv_heads=layout.num_kv_heads,
            num_groups=num_heads // layout.num_kv_heads,
            block_size=layout.block_size,
            head_dim=layout.head_dim,
            scale=layout.head_dim**-0.5,
        )
        self._call = _Call(plan=ctypes.addressof(self._plan))

    @staticmethod
    def supports(dtype: torch.dtype) -> bool:
        return dtype in _FUNCTIONS

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        units, merges, places = self._divide(batch)
        if self._prompts is not None:
            self._prompts.plan_prefills(batch)
        slots = np.ascontiguousarray(batch.slot_mapping, dtype=np.int64)
        tables = np.ascontiguousarray(batch.block_tables, dtype=np.int32)
        self._planned = (units, merges, places, slots, tables)
        partial_size = self._num_heads * (self.layout.head_dim + 2)
        if self._partials.numel() < len(places) * partial_size:
            self._partials = torch.empty(len(places) * partial_size, dtype=torch.float32)
        num_elements = int(batch.query_lens @ batch.seq_lens) * 2 * self.layout.num_kv_heads * self.layout.head_dim
        plan = self._plan
        plan.num_threads = torch.get_num_threads() if num_elements > _SERIAL_ELEMENTS else 1
        plan.num_tokens, plan.slot_mapping = len(slots), slots.ctypes.data
        plan.block_tables, plan.table_stride = tables.ctypes.data, tables.shape[1]
        plan.num_units, plan.units = len(units), units.ctypes.data
        plan.num_merges, plan.merges = len(merges), merges.ctypes.data
        plan.places, plan.partials = places.ctypes.data, self._partials.data_ptr()
        self.is_recordable = self._prompts is None or int(batch.query_lens.max(initial=1)) == 1

    def _divide(self, batch: AttentionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The units, merges and places of a step, as csrc/paged_attention.h has them.

        Prompts come first, their last queries before all others: what takes long begins early.
        """
        starts, query_lens = batch.query_start_loc[:-1].astype(np.int64), batch.query_lens
        contexts = batch.seq_lens.astype(np.int64) - query_lens
        prompts = np.flatnonzero(query_lens > 1) if self._prompts is None else np.empty(0, dtype=np.int64)
        tile_rows = int(query_lens[prompts].sum()) * self._num_heads // (_TILES_A_THREAD * torch.get_num_threads())
        tile_queries = max(1, min(_TILE_ROWS, max(_LEAST_TILE_ROWS, tile_rows)) // self._plan.num_groups)
        tiles = [
            (i, starts[i] + first, min(tile_queries, query_lens[i] - first), contexts[i] + first)
            for i in prompts.tolist()
            for first in range(0, int(query_lens[i]), tile_queries)
        ]
        seqs = np.flatnonzero(query_lens == 1)
        lens = batch.seq_lens[seqs].astype(np.int64)
        num_spans = -(-lens // _SPAN)
        of = np.repeat(np.arange(len(seqs)), num_spans)  # each span's sequence, among those that decode
        span = np.arange(len(of)) - (np.cumsum(num_spans) - num_spans)[of]
        is_split = num_spans > 1
        num_shared = self._shared_spans(batch, seqs)
        shares = bool(num_shared.any())
        if shares:
            order = np.lexsort((of, span))
            of, span = of[order], span[order]
            firsts, counts = _runs(span < num_shared[of], max(1, _LEAST_TILE_ROWS // self._plan.num_groups))
        else:
            firsts, counts = np.arange(len(of)), np.ones(len(of), dtype=np.int64)
        is_part = is_split[of]
        share = np.where(is_part, np.cumsum(is_part) - 1, -1)
        places = share[np.lexsort((span, of))] if shares else share
        places = np.ascontiguousarray(places[places >= 0])
        num_places = np.where(is_split, num_spans, 0)
        merges = np.array((starts[seqs], np.cumsum(num_places) - num_places, num_spans)).T[is_split]

        seq, first_key = seqs[of[firsts]], span[firsts] * _SPAN
        units = np.empty((len(tiles) + len(seq), 7), dtype=np.int64)
        if tiles:
            parts = np.array(tiles, dtype=np.int64)
            ends = parts[:, 3] + parts[:, 2]
            order = np.argsort(-ends * parts[:, 2], kind="stable")
            units[: len(tiles), :4], units[: len(tiles), 4] = parts[order], 0
            units[: len(tiles), 5], units[: len(tiles), 6] = ends[order], -1
        columns = units[len(tiles) :].T  # filled one by one: stacking them takes longer than all the rest
        columns[0], columns[1], columns[2], columns[3] = seq, starts[seq], counts, contexts[seq]
        columns[4], columns[5] = first_key, np.minimum(first_key + _SPAN, batch.seq_lens[seq])
        columns[6] = share[firsts]
        return units, np.ascontiguousarray(merges, dtype=np.int64), places

    def _shared_spans(self, batch: AttentionBatch, seqs: np.ndarray) -> np.ndarray:
        """How many of its first spans a decoding sequence has in common with the one before it in the batch."""
        shared = np.zeros(len(seqs), dtype=np.int64)
        lens = batch.seq_lens[seqs]
        whole = (np.minimum(lens[1:], lens[:-1]) - 1) // _SPAN  # the last token's span is always its own
        tables, block_size = batch.block_tables, self.layout.block_size
        pairs = np.flatnonzero((whole > 0) & (np.diff(batch.query_start_loc[seqs]) == 1))
        if len(pairs):
            last_block = -(-_SPAN // block_size) - 1  # of the first span: most sequences differ in it
            pairs = pairs[tables[seqs[pairs], last_block] == tables[seqs[pairs + 1], last_block]]
        if len(pairs):
            num_blocks = -(-int(whole[pairs].max()) * _SPAN // block_size)
            differ = tables[seqs[pairs], :num_blocks] != tables[seqs[pairs + 1], :num_blocks]
            num_same = np.where(differ.any(axis=1), differ.argmax(axis=1), num_blocks)
            shared[pairs + 1] = np.minimum(num_same * block_size // _SPAN, whole[pairs])
        return shared

    # -- a layer -----------------------------------------------------------------------------------------------------

    def attend(self, layer_index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.dtype == k.dtype == v.dtype == self.dtype
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        out = new_output(q.shape, self.dtype)
        call = self._call
        call.cache = self.cache.data_ptr() + layer_index * self._layer_bytes
        call.q, call.k, call.v, call.out = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        call.q_token_stride, call.q_head_stride, _ = q.stride()
        call.k_token_stride, call.k_head_stride, _ = k.stride()
        call.v_token_stride, call.v_head_stride, _ = v.stride()
        call_kernel(self._attend, call)
        if self._prompts is not None:
            self._prompts.attend_prefills(layer_index, q, k, v, out)
        return out


def _runs(continues: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs of entries of which each but the first `continues` the one before, cut evenly where they are too long.

    Returns:
        where each begins, and how many entries it has.
    """
    begins = np.flatnonzero(~continues)
    lengths = np.diff(begins, append=len(continues))
    pieces = -(-lengths // longest)
    run = np.repeat(np.arange(len(begins)), lengths)
    place = np.arange(len(continues)) - begins[run]
    firsts = np.flatnonzero(place % (-(-lengths // pieces))[run] == 0)
    return firsts, np.diff(firsts, append=len(continues))
