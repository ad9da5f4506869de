"""Recorded passes through a model's layers: one per number of tokens and division among adapters, replayed kernel by
kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import PassMemory, PassRecorder, RecordedPass
from quire.models.layers import select_rows
from quire.ops.arrays import Array
from quire.system.threads import num_threads

#: Larger passes are not recorded: their products dominate the overhead between them.
MAX_TOKENS = 64
#: Passes with adapters that are kept, since many divisions never come again.
MAX_WITH_ADAPTERS = 64

_Spans = tuple[tuple[int, int, int], ...]
_Key = tuple[int, int, _Spans]  #: tokens, threads, spans of adapters


@dataclass(slots=True)
class _Recordings:
    """The passes with one attention backend, which share memory."""

    memory: PassMemory = field(default_factory=PassMemory)
    passes: dict[_Key, RecordedPass | None] = field(default_factory=dict)  #: None: not recordable
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
        return [each for recordings in self._of.values() for each in recordings.passes.values() if each is not None]

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
        compute: Callable[..., Array],
        attend: Callable[..., Array],
        *inputs: Array,
        rows: Array | None = None,
        spans: _Spans = (),
    ) -> Array:
        """Run compute(attend, *inputs, rows=rows), from a recording if `attend` is a method of an object with a true
        `is_recordable`. Operations depend on shapes and on the `spans` of adapters only; a recorded pass computes all
        rows."""
        attention = getattr(attend, "__self__", None)
        first = inputs[0]
        if (
            len(first) > MAX_TOKENS
            or not getattr(attention, "is_recordable", False)
            or not isinstance(first, np.ndarray)
        ):
            return compute(attend, *inputs, rows=rows)
        of = self._of.get(attention)
        if of is None:
            of = self._of[attention] = _Recordings()
        key = (len(first), num_threads(), spans)
        if of.must_wait(key):
            return compute(attend, *inputs, rows=rows)
        if key not in of.passes:
            return select_rows(_record(of, key, compute, attend, inputs), rows)
        recorded = of.passes[key]
        return compute(attend, *inputs, rows=rows) if recorded is None else select_rows(recorded(*inputs), rows)


def _record(
    of: _Recordings,
    key: _Key,
    compute: Callable[..., Array],
    attend: Callable[..., Array],
    inputs: tuple[np.ndarray, ...],
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
