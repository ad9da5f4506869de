"""Passes through a model's layers: computed once for a number of tokens, and from then on called kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quire.kernels.loaded import load_kernels
from quire.kernels.recorder import PassMemory, PassRecorder, RecordedPass
from quire.models.layers import take_rows

#: Tokens of a pass that is recorded: with more of them products take so long that nothing between them counts.
MAX_TOKENS = 64


class RecordedPasses:
    """Those of one model. What they compute is what they were recorded from, to the bit.

    A pass in which torch computes anything by itself (an adapter, another rank's part, an architecture without kernels)
    cannot be recorded, and is computed as ever.
    """

    def __init__(self) -> None:
        self._memory = PassMemory()
        self._passes: dict[tuple[Any, ...], RecordedPass | None] = {}  # None: it cannot be recorded
        self._attention: Any = None

    def values(self) -> list[RecordedPass]:
        """Those that there are."""
        return [each for each in self._passes.values() if each is not None]

    def run(
        self, compute: Callable[..., Tensor], attend: Callable[..., Tensor], *inputs: Tensor, rows: Tensor | None = None
    ) -> Tensor:
        """compute(attend, *inputs, rows=rows).

        Args:
            compute: a function of its inputs' values, whose shapes say what it does.
            attend: recorded where it is a method of something whose `is_recordable` says so.
            rows: of the output, that are wanted; a recorded pass computes all.
        """
        attention = getattr(attend, "__self__", None)
        first = inputs[0]
        if (
            len(first) > MAX_TOKENS
            or not getattr(attention, "is_recordable", False)
            or not (first.is_cpu and torch.is_inference_mode_enabled())
        ):
            return compute(attend, *inputs, rows=rows)
        if self._attention is not attention:
            self._passes.clear()
            self._attention = attention
        key = (len(first), torch.get_num_threads())
        if key not in self._passes:
            return take_rows(self._record(key, compute, attend, inputs), rows)
        recorded = self._passes[key]
        return compute(attend, *inputs, rows=rows) if recorded is None else take_rows(recorded(*inputs), rows)

    def _record(
        self,
        key: tuple[Any, ...],
        compute: Callable[..., Tensor],
        attend: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
    ) -> Tensor:
        library = load_kernels().functions
        if library is None:
            self._passes[key] = None
            return compute(attend, *inputs)
        with PassRecorder(self._memory) as recorder:
            kept = [recorder.memory.take(each.shape, each.dtype) for each in inputs]
            for to, given in zip(kept, inputs, strict=True):
                to.copy_(given)
            recorder.other = None
            output = compute(attend, *kept)
        self._passes[key] = recorder.finish(library, kept, output) if recorder.other is None else None
        return output.clone()
