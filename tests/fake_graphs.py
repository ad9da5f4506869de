"""CUDA graphs without a GPU: a recording of operations of torch and launches in Triton's interpreter.

As in a graph, only these are repeated, on the same memory. What Python or numpy computed between them stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten
from triton.runtime import interpreter

from quire.ops.cuda_graphs import GraphRecorder

#: Operations that wait for the device, which a graph refuses.
WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten._unique2.default}


class FakeGraph(TorchDispatchMode):
    """Records in its context. A later replay computes everything again, into the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[Callable[[], None]] = []
        self.num_launches = self.num_replays = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if function in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {function}")
        kwargs = kwargs or {}
        given = {each.untyped_storage().data_ptr() for each in _tensors((args, kwargs))}
        found = function(*args, **kwargs)
        fresh = [each for each in _tensors(found) if each.untyped_storage().data_ptr() not in given]

        def repeat() -> None:
            again = function(*args, **kwargs)
            for old, new in zip(fresh, _tensors(again), strict=False):
                old.copy_(new)

        if fresh or function._schema.is_mutable:
            self._steps.append(repeat)
        return found

    def launch(self, run: Callable[[], None]) -> None:
        with _disable_current_modes():
            run()
        self._steps.append(run)
        self.num_launches += 1

    def replay(self) -> None:
        self.num_replays += 1
        for step in self._steps:
            step()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_flatten(values)[0] if isinstance(each, torch.Tensor)]


@contextmanager
def fake_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeGraph]]:
    """Record these in place of CUDA graphs."""
    graphs: list[FakeGraph] = []
    now: list[FakeGraph] = []
    launch = interpreter.GridExecutor.__call__

    def call(executor: Any, *args: Any, **kwargs: Any) -> None:
        if now:
            now[0].launch(lambda: launch(executor, *args, **kwargs))
        else:
            launch(executor, *args, **kwargs)

    def capture(recorder: GraphRecorder, run: Callable[[], torch.Tensor]) -> tuple[FakeGraph, torch.Tensor]:
        graph = FakeGraph()
        now.append(graph)
        try:
            with graph:
                output = run()
        finally:
            now.clear()
        graphs.append(graph)
        return graph, output

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", call)
    monkeypatch.setattr(GraphRecorder, "_capture", capture)
    yield graphs
