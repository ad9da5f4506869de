"""LoRA adapters of requests: each row of a step has its own, or none. Weights are read once for all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np

from quire.kernels.recorder import new_output
from quire.models.adapter import LoraAdapter, PanelAdapter, TensorAdapter, read_adapter
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear
from quire.ops.arrays import FLOAT32, Array

#: (number of the adapter, first row, end) of neighbouring rows, in order; 0 is none.
Spans = tuple[tuple[int, int, int], ...]


class RequestAdapters:
    """The adapters of one model, by numbers that are never used again."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self._loaded: dict[int, LoraAdapter] = {}
        self._of: dict[Linear, _RowAdapters] = {}
        self._spans: dict[int, Spans] = {}  #: of the pass, by its number of rows

    def load(self, number: int, directory: Path) -> str:
        """Read an adapter. Returns its digest. ModelConfigError, before anything changes, if it does not fit."""
        digest = sha256()

        def read(path: Path) -> bytes:
            content = path.read_bytes()
            digest.update(len(content).to_bytes(8, "little") + content)
            return content

        model = self._model
        adapter = read_adapter(directory, model, dtype=model.dtype, device=model.device, digest="", read=read)
        self._loaded[number] = adapter
        for linear, part in adapter.items():
            self._of.setdefault(linear, _RowAdapters(self._spans.__getitem__)).parts[number] = part
        return digest.hexdigest()

    def drop(self, number: int) -> None:
        """Free an adapter that no row has any more; harmless without one."""
        for linear, _ in self._loaded.pop(number).items() if number in self._loaded else ():
            parts = self._of[linear].parts
            del parts[number]
            if not parts:
                del self._of[linear]
        self._model.recorded_passes.forget(number)

    @contextmanager
    def on(self, numbers: np.ndarray, rows: np.ndarray | None) -> Iterator[None]:
        """Turn the adapters on for a pass over tokens with these numbers, int64 [num_tokens], of which the last layer
        computes `rows`."""
        spans = _spans_of(numbers)
        self._spans[len(numbers)] = spans
        if rows is not None:
            self._spans[len(rows)] = _spans_of(numbers[rows])
        self._model.adapter_spans = spans
        for linear, adapter in self._of.items():
            linear.adapter = adapter
        try:
            yield
        finally:
            for linear in self._of:
                linear.adapter = None
            self._model.adapter_spans = ()
            self._spans.clear()


def _spans_of(numbers: np.ndarray) -> Spans:
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()][: len(numbers)]
    ends = [*starts[1:], len(numbers)]
    return tuple((int(numbers[start]), start, end) for start, end in zip(starts, ends, strict=False))


class _RowAdapters:
    """The adapters of one linear layer, each for its rows. `spans_of` returns the spans of so many rows."""

    def __init__(self, spans_of: Callable[[int], Spans]) -> None:
        self._spans_of = spans_of
        self.parts: dict[int, PanelAdapter | TensorAdapter] = {}

    def add_to(self, y: Array, x: Array) -> Array:
        for number, start, end in self._spans_of(len(x)):
            if (part := self.parts.get(number)) is not None:
                part.add_to(y[start:end], x[start:end])
        return y

    def output(self, x: Array) -> Array:
        """See `PanelAdapter.output`: packed weights have no others."""
        first = next(iter(self.parts.values()))
        assert isinstance(first, PanelAdapter)
        out = new_output((len(x), first.out_features), FLOAT32)
        for number, start, end in self._spans_of(len(x)):
            part = self.parts.get(number)
            if isinstance(part, PanelAdapter):
                part.write_to(out[start:end], x[start:end])
            else:
                first.write_zeros(out[start:end])
        return out
