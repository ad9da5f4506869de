"""Paged attention by our own kernel (`kernels/csrc`), which reads KV blocks in place."""

from __future__ import annotations

import ctypes

import numpy as np

from quire.attention.interface import AttentionBatch, KVLayout
from quire.kernels.loaded import DTYPES
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, layout
from quire.ops.arrays import Array, DType, as_numpy, name_of, takes_tensors
from quire.system.threads import num_threads


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

    def __init__(self, cache: Array, layout: KVLayout, num_heads: int, library: ctypes.CDLL) -> None:
        self.layout = layout
        self.cache = cache = as_numpy(cache)
        self.dtype = cache.dtype
        self._attend = getattr(library, f"quire_attend_{cache.dtype.name}")
        self._attend.restype = None
        self._divide = library.quire_divide
        self._divide.restype = ctypes.c_int64
        self._span: int = library.quire_span()
        self._layer_bytes = 2 * layout.num_kv_heads * layout.block_size * layout.head_dim * cache.itemsize
        self._num_heads = num_heads
        self._partials = np.empty(0, np.float32)
        self._planned: tuple[np.ndarray, ...] = ()  # arrays that the plan points to
        self._units, self._merges, self._places = (np.empty((0, width), dtype=np.int64) for width in (7, 3, 1))
        self._plan = _AttentionPlan(
            block_stride=cache.strides[0] // cache.itemsize,
            num_kv_heads=layout.num_kv_heads,
            num_groups=num_heads // layout.num_kv_heads,
            block_size=layout.block_size,
            head_dim=layout.head_dim,
            scale=layout.head_dim**-0.5,
        )
        self._call = _AttentionCall(plan=ctypes.addressof(self._plan))

    @staticmethod
    def supports(dtype: DType) -> bool:
        return name_of(dtype) in DTYPES

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
        if self._partials.size < num_partials * partial_size:
            self._partials = np.empty(num_partials * partial_size, np.float32)
            plan.partials = address(self._partials)

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

    def attend(self, layer_index: int, q: Array, k: Array, v: Array) -> Array:
        return self._attend_to(q, k, v, layer_index)

    @takes_tensors
    def _attend_to(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, layer_index: int) -> np.ndarray:
        assert q.dtype == k.dtype == v.dtype == self.dtype
        q, k, v = dense_rows(q), dense_rows(k), dense_rows(v)
        out = new_output(q.shape, self.dtype)
        call = self._call
        call.cache = address(self.cache) + layer_index * self._layer_bytes
        call.q, call.k, call.v, call.out = address(q), address(k), address(v), address(out)
        size = self.dtype.itemsize
        call.q_token_stride, call.q_head_stride = q.strides[0] // size, q.strides[1] // size
        call.k_token_stride, call.k_head_stride = k.strides[0] // size, k.strides[1] // size
        call.v_token_stride, call.v_head_stride = v.strides[0] // size, v.strides[1] // size
        call_kernel(self._attend, call)
        return out
