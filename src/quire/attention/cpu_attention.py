"""Paged attention by our own kernel (`kernels/csrc`), which reads KV blocks in place."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from quire.attention.interface import AttentionBatch, KVLayout
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import layout
from quire.system.threads import num_threads

_FUNCTIONS = {torch.float32: "quire_attend_float32", torch.bfloat16: "quire_attend_bfloat16"}


class _AttentionPlan(ctypes.Structure):
    """`QuirePlan` in csrc/paged_attention.h."""

    _fields_ = layout(
        "int64 block_stride num_kv_heads num_groups block_size head_dim",
        "float scale",
        "int32 num_threads",
        "int64 num_tokens",
        "pointer slot_mapping block_tables",
        "int64 table_stride num_units",
        "pointer units",
        "int64 num_merges",
        "pointer merges places partials",
    )


class _AttentionBatch(ctypes.Structure):
    """`QuireBatch` there."""

    _fields_ = layout("int64 num_seqs", "pointer query_start_loc seq_lens")


class _AttentionCall(ctypes.Structure):
    """`QuireAttention` there."""

    _fields_ = layout(
        "pointer plan cache q k v out",
        "int64 q_token_stride q_head_stride k_token_stride k_head_stride v_token_stride v_head_stride",
    )


class CpuAttention:
    """See `AttentionBackend`. The cache is in main memory."""

    is_recordable = True  #: each layer of the planned step is exactly one kernel call

    def __init__(self, cache: torch.Tensor, layout: KVLayout, num_heads: int, library: ctypes.CDLL) -> None:
        self.layout = layout
        self.dtype = cache.dtype
        self.cache = cache
        self._attend = getattr(library, _FUNCTIONS[cache.dtype])
        self._attend.restype = None
        self._divide = library.quire_divide
        self._divide.restype = ctypes.c_int64
        self._span: int = library.quire_span()
        self._layer_bytes = 2 * layout.num_kv_heads * layout.block_size * layout.head_dim * cache.element_size()
        self._num_heads = num_heads
        self._partials = torch.empty(0, dtype=torch.float32)
        self._planned: tuple[np.ndarray, ...] = ()  # arrays that the plan points to
        self._units, self._merges, self._places = (np.empty((0, width), dtype=np.int64) for width in (7, 3, 1))
        self._plan = _AttentionPlan(
            block_stride=cache.stride(0),
            num_kv_heads=layout.num_kv_heads,
            num_groups=num_heads // layout.num_kv_heads,
            block_size=layout.block_size,
            head_dim=layout.head_dim,
            scale=layout.head_dim**-0.5,
        )
        self._call = _AttentionCall(plan=ctypes.addressof(self._plan))

    @staticmethod
    def supports(dtype: torch.dtype) -> bool:
        return dtype in _FUNCTIONS

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        starts, lens = (np.ascontiguousarray(each, dtype=np.int64) for each in (batch.query_start_loc, batch.seq_lens))
        slots = np.ascontiguousarray(batch.slot_mapping, dtype=np.int64)
        tables = np.ascontiguousarray(batch.block_tables, dtype=np.int32)
        self._planned = (slots, tables)
        plan = self._plan
        self._make_room(len(slots) + len(lens) + int(lens.sum()) // self._span)
        plan.num_threads = num_threads()
        plan.num_tokens, plan.slot_mapping = len(slots), slots.ctypes.data
        plan.block_tables, plan.table_stride = tables.ctypes.data, tables.shape[1]
        sequences = _AttentionBatch(len(lens), starts.ctypes.data, lens.ctypes.data)
        num_partials = self._divide(ctypes.byref(plan), ctypes.byref(sequences))
        partial_size = self._num_heads * (self.layout.head_dim + 2)
        if self._partials.numel() < num_partials * partial_size:
            self._partials = torch.empty(num_partials * partial_size, dtype=torch.float32)
            plan.partials = self._partials.data_ptr()

    def _make_room(self, size: int) -> None:
        if size > len(self._units):
            self._units, self._merges, self._places = (
                np.empty((2 * size, each.shape[1]), dtype=np.int64)
                for each in (self._units, self._merges, self._places)
            )
            plan = self._plan
            plan.units, plan.merges = self._units.ctypes.data, self._merges.ctypes.data
            plan.places = self._places.ctypes.data

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
        return out
