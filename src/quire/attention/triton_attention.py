"""Paged attention by our Triton kernels (`kernels/triton/attention.py`), which read KV blocks in place, on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
import triton
import triton.language as tl

from quire.attention.block_records import BlockRecords
from quire.attention.interface import AttentionBatch, KVLayout, LayerAttention, StateRule
from quire.attention.triton_states import StatePlanner
from quire.kernels.triton import attention as kernels
from quire.ops.arrays import name_of
from quire.ops.cuda_graphs import MAX_TOKENS, recorded_size

_SPAN = 256  # keys of a part of a decode's context, a multiple of every tile
_MOST_DECODED = 8  # queries of a sequence whose context is cut in spans: a token and its drafts
_STORED_ROWS = 16  # heads of tokens
_PARTS = 16  # joined at once; more than the leading spans that only some of these queries see
_PROGRAMS = 8  # of a recorded launch, for each multiprocessor
_PLAN_SIZE = 2**20  # integers, at first
_PLACES = 64  # at first
_HEADER = 6  # integers per kind of layer


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
class _KindPlan:
    """The plan of a step for all layers of one kind."""

    layer: LayerAttention
    sizes: TileSizes
    device: torch.device
    header: int  #: where the counts and starts of the units of prompts and of decodes and of the merges are
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    sums: torch.Tensor = field(init=False)  #: float32 [num_places, num_heads, value_dim]
    stats: torch.Tensor = field(init=False)  #: float32 [num_places, num_heads, 2]: maximum, sum of weights

    def __post_init__(self) -> None:
        self.make_room(_PLACES)

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
        if not len(seqs):
            return np.empty((0, kernels.UNIT_FIELDS.value)), np.empty((0, kernels.MERGE_FIELDS.value)), 0
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
        sizes = counts * spans_of_seq * is_cut
        place = sizes.cumsum() - sizes
        seq = tile_of[unit_of]
        at = (first_span[unit_of] + part) * span
        units = np.array((
            seqs[seq], tokens[seq], counts[seq], contexts[seq], first_row[unit_of], np.maximum(at, begin[unit_of]),
            np.minimum(at + span, end[unit_of]), np.where(is_cut[seq], place[seq] + part, -1), spans_of_seq[seq],
        )).T  # fmt: skip
        cut_of, query = _expand(counts * is_cut)
        merges = (tokens[cut_of] + query, place[cut_of] + query * spans_of_seq[cut_of], spans_of_seq[cut_of])
        return units, np.array(merges).T, int(sizes.sum())

    def make_room(self, num_places: int) -> None:
        shape = (num_places, self.layer.num_heads)
        self.sums = torch.empty((*shape, self.layer.value_dim), dtype=torch.float32, device=self.device)
        self.stats = torch.empty((*shape, 2), dtype=torch.float32, device=self.device)


def _expand(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return owner and number of each item: of [2, 1], [0, 0, 1] and [0, 1, 0]."""
    owners = np.arange(len(counts)).repeat(counts)
    return owners, np.arange(len(owners)) - (counts.cumsum() - counts).repeat(counts)


class TritonAttention:
    """See `AttentionBackend`. The cache is on a GPU, or in main memory for the interpreter; with states, in records."""

    def __init__(self, cache: torch.Tensor, layout: KVLayout, records: BlockRecords | None = None) -> None:
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
            if not isinstance(layer, LayerAttention):
                continue
            kind = replace(layer, reads_layer=None)
            if kind not in plans:
                sizes = TileSizes.of(kind, cache.itemsize)
                plans[kind] = _KindPlan(kind, sizes, self.device, _HEADER * len(plans))
            self._plan_of[index] = plans[kind]
        self._plans = [*plans.values()]
        self.kinds = [*plans]  #: of layers: those of one kind share a plan
        self._records = records
        self._states = None if records is None else StatePlanner(cache, layout, records)
        self._states_at = _HEADER * len(plans)
        self._slots_at = _aligned(self._states_at + (0 if records is None else StatePlanner.HEADER))
        self._memory = torch.empty(_PLAN_SIZE, dtype=torch.int32, device=self.device)
        self._num_programs = 2
        if cache.is_cuda:
            self._num_programs = _PROGRAMS * torch.cuda.get_device_properties(self.device).multi_processor_count
        self._outputs: dict[tuple[int, ...], torch.Tensor] = {}
        self.is_recordable = False  #: whether the planned step has launches that a CUDA graph can repeat
        #: Changes with the launches of recordable steps of so many tokens.
        self.recording: tuple[int, bool] = (0, False)

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, batch: AttentionBatch) -> None:
        blocks = batch
        batch = batch if self._records is None else self._records.locate(batch, self.layout.block_size)
        num_tokens, (num_seqs, width) = len(batch.slot_mapping), batch.block_tables.shape
        self.is_recordable = 0 < num_tokens <= MAX_TOKENS and bool((batch.query_lens <= _MOST_DECODED).all())
        slots = np.full(recorded_size(num_tokens) if self.is_recordable else num_tokens, -1)
        slots[:num_tokens] = batch.slot_mapping
        arrays, starts = [slots, batch.block_tables], [self._slots_at, self._slots_at + _aligned(len(slots))]
        header = np.zeros(self._slots_at, np.int32)
        end = starts[1] + num_seqs * width
        (version, _), num_merges = self.recording, 0
        for plan in self._plans:
            *parts, num_places = plan.divide(batch)
            for units in parts[:2]:
                units[:, 0] = starts[1] + units[:, 0] * width
            plan.counts = [len(part) for part in parts]
            for index, part in enumerate(parts):
                header[plan.header + 2 * index :][:2] = len(part), end
                arrays.append(part)
                starts.append(end)
                end += part.size
            if len(plan.sums) < num_places:
                plan.make_room(triton.next_power_of_2(num_places))
                version += 1
            num_merges += plan.counts[2]
        if self._states is not None:
            own, parts = self._states.plan(blocks, end)
            header[self._states_at :][: len(own)] = own
            self.is_recordable &= len(self._states.groups) == 1
            arrays, starts, end = arrays + parts, starts + own[1:], own[-1] + parts[-1].size
        if len(self._memory) < end:
            self._memory = torch.empty(triton.next_power_of_2(end), dtype=torch.int32, device=self.device)
            version += 1
        self.recording = version, num_merges > 0
        self._copy([header, *arrays], [0, *starts], end)

    def _copy(self, arrays: list[np.ndarray], starts: list[int], end: int) -> None:
        """Copy integers to their places in the plan, all at once. Torch reuses pinned memory only after the copy."""
        staging = torch.empty(end, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        memory = staging.numpy()
        for start, each in zip(starts, arrays, strict=True):
            memory[start : start + each.size] = each.ravel()
        self._memory[:end].copy_(staging, non_blocking=True)

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
            num_rows = len(q) if self.is_recordable else None
            return sinks(self._states.of_layer(layer_index, self._memory, self._states_at, num_rows), q, k, v)
        plan, start = self._plan_of[layer_index], self.layout.starts[layer_index]
        layer, sizes = plan.layer, plan.sizes
        values_at = start + (0 if layer.has_latent else layer.num_kv_heads * self.layout.block_size * layer.head_dim)
        if k is not None:
            self._store(plan, start, values_at, _dense(k), None if v is None else _dense(v))
        q = _dense(q)
        out = self._new_output(q, layer)
        for count, rows, at in zip(plan.counts, (sizes.rows, sizes.decode_rows), (0, 2), strict=False):
            if not count:
                continue
            kernels.attend[self._programs(count, q, layer.num_kv_heads), layer.num_kv_heads](
                q, self.cache, sinks, out, plan.sums, plan.stats, self._memory, plan.header + at, *q.stride()[:2],
                self.cache.stride(0), start, values_at,
                NUM_KV_HEADS=layer.num_kv_heads, GROUPS=layer.num_heads // layer.num_kv_heads, KEY_DIM=layer.head_dim,
                VALUE_DIM=layer.value_dim, VALUE_STRIDE=layer.head_dim if layer.has_latent else layer.value_dim,
                BLOCK_SIZE=self.layout.block_size, SCALE=layer.scale, SOFTCAP=layer.softcap, WINDOW=layer.window,
                ROWS=rows, KEYS=sizes.keys, FIRST=sizes.first, REST=sizes.rest, VALUES=sizes.values,
                OPERANDS=self._operands, num_warps=sizes.num_warps(rows), num_stages=2,
            )  # fmt: skip
        if num_merges := len(q) if self.is_recordable and self.recording[1] else plan.counts[2]:
            kernels.join_parts[num_merges, layer.num_heads](
                plan.sums, plan.stats, sinks, out, self._memory, plan.header + 4, NUM_HEADS=layer.num_heads,
                VALUE_DIM=layer.value_dim, VALUES=sizes.values, PARTS=_PARTS,
            )  # fmt: skip
        return out

    def _programs(self, num_units: int, q: torch.Tensor, num_kv_heads: int) -> int:
        """Return how many programs compute these units: in a recordable step, a number that only its rows decide."""
        return max(len(q), self._num_programs // num_kv_heads) if self.is_recordable else num_units

    def _new_output(self, q: torch.Tensor, layer: LayerAttention) -> torch.Tensor:
        """Return memory for a layer's output. In a recordable step the next layer overwrites it, and rows of padding
        stay as they are, which is finite."""
        shape = (len(q), layer.num_heads, layer.value_dim)
        if not self.is_recordable:
            return torch.empty(shape, dtype=q.dtype, device=q.device)
        if shape not in self._outputs:
            self._outputs[shape] = torch.zeros(shape, dtype=q.dtype, device=q.device)
        return self._outputs[shape]

    def _store(self, plan: _KindPlan, start: int, values_at: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
        layer = plan.layer
        if len(k):
            kernels.store_kv[(triton.cdiv(len(k) * layer.num_kv_heads, _STORED_ROWS),)](
                k, v, self.cache, self._memory, len(k), *k.stride()[:2], *(k if v is None else v).stride()[:2],
                self.cache.stride(0), start, values_at, SLOTS=self._slots_at, NUM_KV_HEADS=layer.num_kv_heads,
                KEY_DIM=layer.head_dim, VALUE_DIM=layer.value_dim, BLOCK_SIZE=self.layout.block_size, ROWS=_STORED_ROWS,
                KEYS=triton.next_power_of_2(layer.head_dim), VALUES=triton.next_power_of_2(layer.value_dim),
            )  # fmt: skip


def _aligned(size: int) -> int:
    """Round up to 16 bytes."""
    return -(-size // 4) * 4


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return x with adjacent features."""
    return x if x.stride(-1) == 1 else x.contiguous()
