"""Paged attention by our Triton kernels (`kernels/triton/attention.py`), which read KV blocks in place, on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import triton
import triton.language as tl

from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, StateRule
from quire.kernels.triton import attention as kernels
from quire.ops.arrays import name_of

_SPAN = 256  # keys of a part of a decode's context, a multiple of every tile
_MOST_DECODED = 8  # queries of a sequence whose context is cut in spans: a token and its drafts
_STORED_ROWS = 16  # heads of tokens
_PARTS = 16  # joined at once; more than the leading spans that only some of these queries see


def _power_of_two(size: int) -> int:
    """Round up, to 16 at least: the least size of a product."""
    return max(16, triton.next_power_of_2(size))


@dataclass(frozen=True)
class TileSizes:
    """Sizes of the kernels' tiles for a kind of layer, which keep sums in registers and keys in shared memory."""

    first: int  #: features of keys that are read first, and the rest
    rest: int
    values: int
    keys: int
    rows: int  #: of prompts
    decode_rows: int

    @classmethod
    def of(cls, layer: LayerAttention, itemsize: int) -> TileSizes:
        is_narrow = itemsize == 2  # products of float32 take no tensor cores, but registers
        whole, values = _power_of_two(layer.head_dim), _power_of_two(layer.value_dim)
        first = whole if whole == layer.head_dim or whole == 16 else whole // 2
        rest = _power_of_two(layer.head_dim - first) if first < layer.head_dim else 16
        num_features = values + (first + rest if first < layer.head_dim else first)
        most_keys = (16384 if is_narrow else 4096) // num_features
        keys = max(16, min(64, 2 ** (most_keys.bit_length() - 1)))
        rows = min(128, 16384 // max(first, values)) if is_narrow else 32
        return cls(first, rest, values, keys, rows, min(rows, _power_of_two(layer.num_heads // layer.num_kv_heads)))

    def num_warps(self, rows: int) -> int:
        return 8 if rows * max(self.first, self.values) >= 4096 else 4


@dataclass
class _Tiles:
    """Tiles of a step for one kind of layer."""

    rows: int
    units: torch.Tensor  #: [num_units, UNIT_FIELDS]


@dataclass
class _KindPlan:
    """The plan of a step for all layers of one kind."""

    layer: LayerAttention
    sizes: TileSizes
    launches: list[_Tiles] = field(default_factory=list)
    merges: torch.Tensor | None = None  #: [num_merges, MERGE_FIELDS]
    sums: torch.Tensor | None = None  #: float32 [num_places, num_heads, value_dim]
    stats: torch.Tensor | None = None  #: float32 [num_places, num_heads, 2]: maximum, sum of weights

    def divide(self, batch: AttentionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Return the units of prompts and of decodes, the merges, and the number of places for parts."""
        counts = batch.query_lens
        is_decode = counts <= _MOST_DECODED
        prompts, _, _ = self._units(batch, np.flatnonzero(~is_decode), self.sizes.rows, 0)
        return prompts, *self._units(batch, np.flatnonzero(is_decode & (counts > 0)), self.sizes.decode_rows, _SPAN)

    def _units(
        self, batch: AttentionBatch, seqs: np.ndarray, num_rows: int, span: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Cut the rows of sequences into tiles, and their keys into spans if there is a `span`."""
        window, keys = self.layer.window, self.sizes.keys
        groups = self.layer.num_heads // self.layer.num_kv_heads
        counts, lens, tokens = batch.query_lens[seqs], batch.seq_lens[seqs], batch.query_start_loc[seqs]
        contexts = lens - counts
        tile_of, tile = _expand(-(-counts * groups // num_rows))  # sequence of each tile, and its number there
        first_row = tile * num_rows
        first_query = 0 if span else first_row // groups  # spans are those of all tiles of a sequence
        last_query = np.minimum((first_row + num_rows - 1) // groups, counts[tile_of] - 1)
        begin = contexts[tile_of] + first_query - window + 1 if window else np.zeros_like(tile_of)
        begin = np.maximum(begin, 0) // keys * keys
        end = contexts[tile_of] + last_query + 1
        if not span:
            span = int(lens.max(initial=1)) + keys
        first_span = begin // span
        num_spans = -(-lens[tile_of] // span) - first_span
        unit_of, part = _expand(num_spans)
        spans_of_seq = np.ones_like(counts)
        spans_of_seq[tile_of] = num_spans
        is_cut = spans_of_seq > 1
        sizes = np.where(is_cut, counts * spans_of_seq, 0)
        place = np.where(is_cut, np.cumsum(sizes) - sizes, -1)
        seq = tile_of[unit_of]
        at = (first_span[unit_of] + part) * span
        columns = (
            seqs[seq], tokens[seq], counts[seq], contexts[seq], first_row[unit_of], np.maximum(at, begin[unit_of]),
            np.minimum(at + span, end[unit_of]), np.where(is_cut[seq], place[seq] + part, -1), spans_of_seq[seq],
        )  # fmt: skip
        cut_of, query = _expand(np.where(is_cut, counts, 0))
        merges = (tokens[cut_of] + query, place[cut_of] + query * spans_of_seq[cut_of], spans_of_seq[cut_of])
        return np.stack(columns, 1), np.stack(merges, 1), int(sizes.sum())

    def make_room(self, num_places: int, device: torch.device) -> None:
        if self.sums is None or len(self.sums) < num_places:
            shape = (num_places * 3 // 2, self.layer.num_heads)
            self.sums = torch.empty((*shape, self.layer.value_dim), dtype=torch.float32, device=device)
            self.stats = torch.empty((*shape, 2), dtype=torch.float32, device=device)


def _expand(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return owner and number of each item: of [2, 1], [0, 0, 1] and [0, 1, 0]."""
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)


class TritonAttention:
    """See `AttentionBackend`. The cache is on a GPU, or in main memory for Triton's interpreter. No states."""

    def __init__(self, cache: torch.Tensor, layout: KVLayout) -> None:
        self.layout = layout
        self.cache = cache
        self.device, self.dtype = cache.device, cache.dtype
        name = name_of(cache.dtype)
        if triton.knobs.runtime.interpret and name == "bfloat16":  # the interpreter cannot multiply it
            name = "float32"
        self._operands = getattr(tl, name)
        self._plan_of: dict[int, _KindPlan] = {}
        plans: dict[LayerAttention, _KindPlan] = {}
        for index, layer in enumerate(layout.layers):
            assert isinstance(layer, LayerAttention)
            kind = replace(layer, reads_layer=None)
            if kind not in plans:
                plans[kind] = _KindPlan(kind, TileSizes.of(kind, cache.itemsize))
            self._plan_of[index] = plans[kind]
        self._plans = [*plans.values()]
        self.kinds = [*plans]  #: of layers: those of one kind share a plan
        self._slots = self._tables = torch.empty(0, dtype=torch.int32)

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        divided = [plan.divide(batch) for plan in self._plans]
        arrays = [each for *parts, _ in divided for each in parts]
        self._slots, self._tables, *on_device = self._to_device([batch.slot_mapping, batch.block_tables, *arrays])
        for at, (plan, (*_, num_places)) in enumerate(zip(self._plans, divided, strict=True)):
            prompts, decodes, plan.merges = on_device[3 * at : 3 * at + 3]
            launches = (_Tiles(plan.sizes.rows, prompts), _Tiles(plan.sizes.decode_rows, decodes))
            plan.launches = [launch for launch in launches if len(launch.units)]
            plan.make_room(num_places, self.device)

    def _to_device(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Copy integers as int32, in one copy. Each begins at 16 bytes, or kernels would be compiled again."""
        ends = np.cumsum([-(-each.size // 4) * 4 for each in arrays]).tolist()
        memory = np.zeros(ends[-1], np.int32)
        starts = [0, *ends]
        for start, each in zip(starts, arrays, strict=False):
            memory[start : start + each.size] = each.ravel()
        copied = torch.from_numpy(memory).to(self.device)
        return [copied[start : start + each.size].view(each.shape) for start, each in zip(starts, arrays, strict=False)]

    # -- a layer -----------------------------------------------------------------------------------------------------

    def attend(
        self,
        layer_index: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | StateRule | None = None,
    ) -> torch.Tensor:
        assert not callable(sinks)
        plan, start = self._plan_of[layer_index], self.layout.starts[layer_index]
        layer, sizes = plan.layer, plan.sizes
        values_at = start + (0 if layer.has_latent else layer.num_kv_heads * self.layout.block_size * layer.head_dim)
        if k is not None:
            self._store(plan, start, values_at, _dense(k), None if v is None else _dense(v))
        q = _dense(q)
        out = torch.empty((len(q), layer.num_heads, layer.value_dim), dtype=q.dtype, device=q.device)
        for launch in plan.launches:
            kernels.attend[len(launch.units), layer.num_kv_heads](
                q, self.cache, sinks, out, plan.sums, plan.stats, launch.units, self._tables, *q.stride()[:2],
                self.cache.stride(0), self._tables.stride(0), start, values_at,
                NUM_KV_HEADS=layer.num_kv_heads, GROUPS=layer.num_heads // layer.num_kv_heads, KEY_DIM=layer.head_dim,
                VALUE_DIM=layer.value_dim, VALUE_STRIDE=layer.head_dim if layer.has_latent else layer.value_dim,
                BLOCK_SIZE=self.layout.block_size, SCALE=layer.scale, SOFTCAP=layer.softcap, WINDOW=layer.window,
                ROWS=launch.rows, KEYS=sizes.keys, FIRST=sizes.first, REST=sizes.rest, VALUES=sizes.values,
                OPERANDS=self._operands, num_warps=sizes.num_warps(launch.rows), num_stages=2,
            )  # fmt: skip
        if plan.merges is not None and len(plan.merges):
            kernels.join_parts[len(plan.merges), layer.num_heads](
                plan.sums, plan.stats, sinks, out, plan.merges, NUM_HEADS=layer.num_heads, VALUE_DIM=layer.value_dim,
                VALUES=sizes.values, PARTS=_PARTS,
            )  # fmt: skip
        return out

    def _store(self, plan: _KindPlan, start: int, values_at: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
        layer = plan.layer
        if len(self._slots):
            kernels.store_kv[(triton.cdiv(len(self._slots) * layer.num_kv_heads, _STORED_ROWS),)](
                k, v, self.cache, self._slots, len(self._slots), *k.stride()[:2], *(k if v is None else v).stride()[:2],
                self.cache.stride(0), start, values_at, NUM_KV_HEADS=layer.num_kv_heads, KEY_DIM=layer.head_dim,
                VALUE_DIM=layer.value_dim, BLOCK_SIZE=self.layout.block_size, ROWS=_STORED_ROWS,
                KEYS=triton.next_power_of_2(layer.head_dim), VALUES=triton.next_power_of_2(layer.value_dim),
            )  # fmt: skip


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return x with adjacent features."""
    return x if x.stride(-1) == 1 else x.contiguous()
