"""Paged attention by our own kernel (`kernels/csrc`), which reads KV blocks in place."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np

from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, StateRule
from quire.attention.states import CacheStates
from quire.kernels.loaded import DTYPES
from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense_rows, structure
from quire.ops.arrays import Array, DType, as_numpy, name_of, numpy_dtype, takes_tensors
from quire.system.threads import num_threads

_AttentionPlan = structure(
    "QuirePlan",
    "int64 block_stride num_kv_heads num_groups block_size head_dim value_dim",
    "int64 key_stride values_at value_stride window",
    "float scale softcap",
    "int32 stores_values num_threads",
    "int64 num_tokens",
    "pointer slot_mapping block_tables",
    "int64 table_stride num_units",
    "pointer units",
    "int64 num_merges",
    "pointer merges places partials",
)  # csrc/paged_attention.h
_AttentionBatch = structure("QuireBatch", "int64 num_seqs", "pointer query_start_loc seq_lens")
_AttentionCall = structure(
    "QuireAttention",
    "pointer plan cache q k v sinks out",
    "int64 q_token_stride q_head_stride k_token_stride k_head_stride v_token_stride v_head_stride",
)
_ALL_KEYS = 2**62  # the window of a layer without one


class _LayerPlan:
    """The plan of a step for all layers of one kind."""

    def __init__(self, library: ctypes.CDLL, layer: LayerAttention, block_size: int, block_stride: int) -> None:
        self._divide, self._span = library.quire_divide, int(library.quire_span())
        self._divide.restype = ctypes.c_int64
        self._partial_size = layer.num_heads * (layer.value_dim + 2)
        self._partials = np.empty(0, np.float32)
        self._units, self._merges, self._places = (np.empty((0, width), dtype=np.int64) for width in (7, 3, 1))
        self.plan = _AttentionPlan(
            block_stride=block_stride,
            num_kv_heads=layer.num_kv_heads,
            num_groups=layer.num_heads // layer.num_kv_heads,
            block_size=block_size,
            head_dim=layer.head_dim,
            value_dim=layer.value_dim,
            key_stride=layer.key_size,
            values_at=0 if layer.has_latent else layer.num_kv_heads * block_size * layer.key_size,
            value_stride=layer.key_size if layer.has_latent else layer.value_size,
            window=layer.window or _ALL_KEYS,
            scale=layer.scale,
            softcap=layer.softcap,
            stores_values=not layer.has_latent,
        )
        self.address = ctypes.addressof(self.plan)

    @property
    def units(self) -> np.ndarray:
        return self._units[: self.plan.num_units]

    def divide(self, sequences: ctypes.Structure, slots: np.ndarray, tables: np.ndarray, num_keys: int) -> None:
        plan = self.plan
        self._make_room(len(slots) + sequences.num_seqs + num_keys // self._span)
        plan.num_threads = num_threads()
        plan.num_tokens, plan.slot_mapping = len(slots), slots.ctypes.data
        plan.block_tables, plan.table_stride = tables.ctypes.data, tables.shape[1]
        num_partials = self._divide(ctypes.byref(plan), ctypes.byref(sequences))
        if self._partials.size < num_partials * self._partial_size:
            self._partials = np.empty(num_partials * self._partial_size, np.float32)
            plan.partials = address(self._partials)

    def _make_room(self, size: int) -> None:
        if size > len(self._units):
            self._units, self._merges, self._places = (
                np.empty((2 * size, each.shape[1]), dtype=np.int64)
                for each in (self._units, self._merges, self._places)
            )
            plan = self.plan
            plan.units, plan.merges = self._units.ctypes.data, self._merges.ctypes.data
            plan.places = self._places.ctypes.data


class CpuAttention:
    """See `AttentionBackend`. The cache is in main memory. In 8 bits it is quantized (csrc/quantized_kv.h)."""

    is_recordable = True  #: each layer of the planned step is exactly one kernel call

    def __init__(self, cache: Array, layout: KVLayout, library: ctypes.CDLL, dtype: DType | None = None) -> None:
        """`dtype`: of queries, keys and values; by default the cache's."""
        self.layout = layout
        self.cache = cache = as_numpy(cache)
        self.dtype = cache.dtype if dtype is None else numpy_dtype(name_of(dtype))
        kind = self.dtype.name if cache.dtype == self.dtype else f"{self.dtype.name}_{cache.dtype.name}"
        self._attend = getattr(library, f"quire_attend_{kind}")
        self._attend.restype = None
        self._starts = [start * cache.itemsize for start in layout.starts]
        self._planned: tuple[np.ndarray, ...] = ()  # arrays that plans point to
        stride = cache.strides[0] // cache.itemsize
        self.plans: dict[LayerAttention, _LayerPlan] = {}
        self._plan_of: dict[int, _LayerPlan] = {}
        for index, layer in enumerate(layout.layers):
            if isinstance(layer, LayerAttention):
                kind = replace(layer, reads_layer=None)
                if kind not in self.plans:
                    self.plans[kind] = _LayerPlan(library, kind, layout.block_size, stride)
                self._plan_of[index] = self.plans[kind]
        self._states = CacheStates(cache, layout)
        self._call = _AttentionCall()

    @staticmethod
    def supports(dtype: DType) -> bool:
        return name_of(dtype) in DTYPES

    def plan(self, batch: AttentionBatch) -> None:
        starts, lens = (np.ascontiguousarray(each, dtype=np.int64) for each in (batch.query_start_loc, batch.seq_lens))
        slots = np.ascontiguousarray(batch.slot_mapping, dtype=np.int64)
        tables = np.ascontiguousarray(batch.block_tables, dtype=np.int32)
        self._planned = (slots, tables)
        sequences = _AttentionBatch(len(lens), starts.ctypes.data, lens.ctypes.data)
        for plan in self.plans.values():
            plan.divide(sequences, slots, tables, int(lens.sum()))
        self._states.plan(batch)

    def attend(
        self, layer_index: int, q: Array, k: Array | None, v: Array | None, sinks: Array | StateRule | None = None
    ) -> Array:
        if callable(sinks):
            return sinks(self._states[layer_index], q, k, v)
        return self._attend_to(q, k, v, sinks, layer_index)

    @takes_tensors
    def _attend_to(
        self, q: np.ndarray, k: np.ndarray | None, v: np.ndarray | None, sinks: np.ndarray | None, layer_index: int
    ) -> np.ndarray:
        layer = self.layout.layers[layer_index]
        assert isinstance(layer, LayerAttention)
        call, size = self._call, self.dtype.itemsize
        q = self._checked(q, (layer.num_heads, layer.head_dim))
        out = new_output((len(q), layer.num_heads, layer.value_dim), self.dtype)
        call.plan = self._plan_of[layer_index].address
        call.cache = address(self.cache) + self._starts[layer_index]
        call.q, call.out = address(q), address(out)
        call.q_token_stride, call.q_head_stride = q.strides[0] // size, q.strides[1] // size
        call.k = call.v = None
        if k is not None:
            k = self._checked(k, (layer.num_kv_heads, layer.head_dim))
            call.k = address(k)
            call.k_token_stride, call.k_head_stride = k.strides[0] // size, k.strides[1] // size
        if v is not None:
            v = self._checked(v, (layer.num_kv_heads, layer.value_dim))
            call.v = address(v)
            call.v_token_stride, call.v_head_stride = v.strides[0] // size, v.strides[1] // size
        call.sinks = None if sinks is None else address(sinks)
        call_kernel(self._attend, call)
        return out

    def _checked(self, x: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        assert x.dtype == self.dtype
        assert x.shape[1:] == shape
        return dense_rows(x)
