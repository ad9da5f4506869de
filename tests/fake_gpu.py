"""The path of a GPU without one: Triton's interpreter on tensors in main memory, and a stand-in for CUDA graphs.

Of a recording, as of a graph, only operations of torch and launches are repeated, on the same memory. What Python or
numpy computed between them stays as it was.
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

from quire.assembly import runner as assembly_runner
from quire.attention.interface import AttentionBackend, KVLayout
from quire.attention.triton_attention import TritonAttention
from quire.models import experts, rotary
from quire.ops import functions, on_torch, on_triton
from quire.ops.arrays import Array, as_tensor
from quire.ops.cuda_graphs import GraphRecorder

#: Operations that wait for the device, which a graph refuses.
WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten._unique2.default}


def compute_by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the path of a GPU, with tensors in main memory if there is none."""
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    monkeypatch.setattr(assembly_runner, "make_attention", make_attention)
    for module in (functions, rotary):
        monkeypatch.setattr(module, "is_on_host", lambda x: False)
    monkeypatch.setattr(experts, "uses_triton", lambda device: True)
    monkeypatch.setattr(functions, "_of_tensors", lambda name, _: getattr(on_triton, name, getattr(on_torch, name)))


def make_attention(blocks: Array, layout: KVLayout, *_: object, **__: object) -> AttentionBackend:
    return TritonAttention(as_tensor(blocks), layout)


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
