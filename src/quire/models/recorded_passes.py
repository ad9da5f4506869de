"""Recorded passes through a model's layers: one per number of tokens, replayed kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import PassMemory, PassRecorder, RecordedPass
from quire.models.layers import select_rows
from quire.ops.arrays import Array
from quire.system.threads import num_threads

#: Larger passes are not recorded: their products dominate the overhead between them.
MAX_TOKENS = 64


class RecordedPasses:
    """Recorded passes, bit-identical to normal ones. Passes with operations of numpy are not recorded."""

    def __init__(self) -> None:
        self._memory = PassMemory()
        self._passes: dict[tuple[Any, ...], RecordedPass | None] = {}  # None: not recordable
        self._attention: Any = None

    def values(self) -> list[RecordedPass]:
        return [each for each in self._passes.values() if each is not None]

    def run(
        self, compute: Callable[..., Array], attend: Callable[..., Array], *inputs: Array, rows: Array | None = None
    ) -> Array:
        """Run compute(attend, *inputs, rows=rows), from a recording if `attend` is a method of an object with a true
        `is_recordable`. Operations depend on shapes only; a recorded pass computes all rows."""
        attention = getattr(attend, "__self__", None)
        first = inputs[0]
        if (
            len(first) > MAX_TOKENS
            or not getattr(attention, "is_recordable", False)
            or not isinstance(first, np.ndarray)
        ):
            return compute(attend, *inputs, rows=rows)
        if self._attention is not attention:
            self._passes.clear()
            self._attention = attention
        key = (len(first), num_threads())
        if key not in self._passes:
            return select_rows(self._record(key, compute, attend, inputs), rows)
        recorded = self._passes[key]
        return compute(attend, *inputs, rows=rows) if recorded is None else select_rows(recorded(*inputs), rows)

    def _record(
        self,
        key: tuple[Any, ...],
        compute: Callable[..., Array],
        attend: Callable[..., Array],
        inputs: tuple[np.ndarray, ...],
    ) -> Array:
        library = load_kernels().functions
        if library is None:
            self._passes[key] = None
            return compute(attend, *inputs)
        with PassRecorder(self._memory) as recorder:
            kept = [recorder.memory.allocate(each.shape, each.dtype) for each in inputs]
            for to, given in zip(kept, inputs, strict=True):
                np.copyto(to, given)
            recorder.other = None
            output = compute(attend, *kept)
        self._passes[key] = recorder.finish(library, kept, output) if recorder.other is None else None
        return np.array(output)
