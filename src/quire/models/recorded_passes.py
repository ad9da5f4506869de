"""Recorded passes through a model's layers: one per number of tokens and division among adapters, replayed kernel by
kernel, or on a GPU as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import PassMemory, PassRecorder, RecordedPass
from quire.models.layers import select_rows
from quire.ops.arrays import Array
from quire.system.threads import num_threads

if TYPE_CHECKING:
    from quire.ops.cuda_graphs import GraphedPass, GraphRecorder

#: Larger passes are not recorded: their products dominate the overhead between them.
MAX_TOKENS = 64
#: Passes with adapters that are kept, since many divisions never come again.
MAX_WITH_ADAPTERS = 64

_Spans = tuple[tuple[int, int, int], ...]
_Key = tuple[int, Any, _Spans]  #: tokens, threads or the backend's `recording`, spans of adapters


@dataclass(slots=True)
class _Recordings:
    """The passes with one attention backend, which share memory."""

    memory: PassMemory = field(default_factory=PassMemory)
    graphs: GraphRecorder | None = None  #: on a GPU
    version: int = 0  #: of the backend's memory that graphs use
    passes: dict[_Key, RecordedPass | GraphedPass | None] = field(default_factory=dict)  #: None: not recordable
    last: _Key | None = None  #: with adapters

    def must_wait(self, key: _Key) -> bool:
        """Whether to record a pass with adapters only when it comes again; else make room for it."""
        if not key[2] or key in self.passes:
            return False
        is_new, self.last = self.last != key, key
        if not is_new and len(with_adapters := [each for each in self.passes if each[2]]) >= MAX_WITH_ADAPTERS:
            del self.passes[with_adapters[0]]
        return is_new


class RecordedPasses:
    """Recorded passes, bit-identical to normal ones. Passes with operations of numpy are not recorded. Engines in
    several threads may share a model: each has an attention backend."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Any, _Recordings] = WeakKeyDictionary()  #: by attention backend

    def values(self) -> list[RecordedPass]:
        return [
            each
            for recordings in self._of.values()
            for each in recordings.passes.values()
            if isinstance(each, RecordedPass)
        ]

    @property
    def num_bytes(self) -> int:
        return sum(recordings.memory.num_bytes for recordings in self._of.values())

    def forget(self, adapter: int) -> None:
        """Drop the passes with an adapter."""
        for of in self._of.values():
            for key in [key for key in of.passes if any(number == adapter for number, _, _ in key[2])]:
                del of.passes[key]

    def run(
        self,
        prepare: Callable[..., Sequence[Array]],
        compute: Callable[..., Array],
        attend: Callable[..., Array],
        *given: Array,
        rows: Array | None = None,
        spans: _Spans = (),
    ) -> Array:
        """Run compute(attend, *prepare(*given), rows=rows), from a recording if `attend` is a method of an object with
        a true `is_recordable`. Operations depend on shapes and on the `spans` of adapters only; a recorded pass
        computes all rows. A graph has what `prepare` does as well."""
        attention: Any = getattr(attend, "__self__", None)
        if not getattr(attention, "is_recordable", False):
            return compute(attend, *prepare(*given), rows=rows)
        if (of := self._of.get(attention)) is None:
            of = self._of[attention] = _Recordings()
        if (recording := getattr(attention, "recording", None)) is not None:
            return _run_graph(of, recording, lambda *each: compute(attend, *prepare(*each)), given, rows, spans)
        inputs = prepare(*given)
        key = (len(inputs[0]), num_threads(), spans)
        if len(inputs[0]) > MAX_TOKENS or not isinstance(inputs[0], np.ndarray) or of.must_wait(key):
            return compute(attend, *inputs, rows=rows)
        if key not in of.passes:
            return select_rows(_record(of, key, compute, attend, inputs), rows)
        recorded = of.passes[key]
        return compute(attend, *inputs, rows=rows) if recorded is None else select_rows(recorded(*inputs), rows)


def _run_graph(
    of: _Recordings,
    recording: tuple[int, bool],
    compute: Callable[..., Array],
    given: tuple[Array, ...],
    rows: Array | None,
    spans: _Spans,
) -> Array:
    """Run a pass as a graph, and record it before if that is new. Graphs of older memory are dropped."""
    from quire.ops.cuda_graphs import GraphRecorder, recorded_size  # imports torch

    if of.graphs is None or of.version != recording[0]:
        of.graphs, of.version = GraphRecorder(), recording[0]
        of.passes.clear()
    size = len(given[0]) if spans else recorded_size(len(given[0]))  # spans end with the tokens
    key = (size, recording, spans)
    if of.must_wait(key):
        return select_rows(compute(*given), rows)
    if key not in of.passes:
        output, of.passes[key] = of.graphs.record(compute, given, size)
        return select_rows(output, rows)
    recorded = of.passes[key]
    return select_rows(compute(*given) if recorded is None else recorded(*given), rows)


def _record(
    of: _Recordings,
    key: _Key,
    compute: Callable[..., Array],
    attend: Callable[..., Array],
    inputs: Sequence[np.ndarray],
) -> Array:
    library = load_kernels().functions
    if library is None:
        of.passes[key] = None
        return compute(attend, *inputs)
    with PassRecorder(of.memory) as recorder:
        kept = [recorder.memory.allocate(each.shape, each.dtype) for each in inputs]
        for to, given in zip(kept, inputs, strict=True):
            np.copyto(to, given)
        recorder.other = None
        output = compute(attend, *kept)
    of.passes[key] = recorder.finish(library, kept, output) if recorder.other is None else None
    return np.array(output)
