"""A GPU that is simulated in main memory: engines run with device=cuda, kernels in Triton's interpreter.

Its tensors say that they are on cuda, and refuse what a GPU refuses: operations with tensors in main memory other than
single numbers, and numpy. Streams copy at once. Of a recording, as of a CUDA graph, only operations of torch and
launches are repeated, on the same memory: what Python or numpy computed between them stays as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from triton.runtime import interpreter

from quire.models.states import on_triton
from quire.ops.cuda_graphs import GraphRecorder

DEVICE = torch.device("cuda", 0)
TOTAL = 2**30
#: Operations that wait for the device, which a graph refuses.
WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten._unique2.default}


class GpuTensor(torch.Tensor):
    """A tensor on the GPU, with its values in main memory."""

    held: torch.Tensor
    __module__ = "torch"

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> GpuTensor:
        self = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=torch.device("meta"),
        )  # fmt: skip
        self.held = held
        return self

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = is_meta = property(lambda self: False)

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def tolist(self) -> Any:
        return self.held.tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"GpuTensor({self.held})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_copy = function in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        for each in tree_leaves((args, kwargs)):
            if isinstance(each, torch.Tensor) and not isinstance(each, GpuTensor) and each.ndim and not is_copy:
                raise RuntimeError(
                    f"{function}: expected all tensors to be on cuda:0, found {tuple(each.shape)} on cpu"
                )
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        found = function(*held(args), **held(kwargs))
        targets = {id(each.held): each for each in tree_leaves((args, kwargs)) if isinstance(each, GpuTensor)}
        if is_copy and function is torch.ops.aten.copy_.default and not isinstance(args[0], GpuTensor):
            return args[0]  # to main memory
        return tree_map_only(
            torch.Tensor, lambda each: targets[id(each)] if id(each) in targets else GpuTensor(each), found
        )


def held(values: Any) -> Any:
    """Return the same values with tensors in main memory."""
    return tree_map_only(GpuTensor, lambda each: each.held, values)


def on_gpu(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda each: each if isinstance(each, GpuTensor) else GpuTensor(each), values)


#: Torch puts indices and numbers that these take on the device itself.
UNWRAPPED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.where)


class Placement(TorchFunctionMode):
    """Makes and moves tensors where a caller says."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)
        name = getattr(function, "__name__", "")
        if function in UNWRAPPED and isinstance(args[0], GpuTensor):
            return on_gpu(function(*held(args)))
        if name in ("to", "cpu", "cuda") and isinstance(args[0], torch.Tensor):
            return self._move(name, args, kwargs)
        if (device := kwargs.get("device")) is not None and torch.device(device).type == "cuda":
            return on_gpu(function(*held(args), **{**kwargs, "device": "cpu"}))
        return function(*args, **kwargs)

    @staticmethod
    def _move(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        x, *given = args
        given = [each for each in (*given, kwargs.get("device"), kwargs.get("dtype")) if each is not None]
        likes = [each for each in given if isinstance(each, torch.Tensor)]
        dtypes = [each for each in given if isinstance(each, torch.dtype)] + [each.dtype for each in likes]
        places = [torch.device(each) for each in given if isinstance(each, torch.device | str)]
        places += [each.device for each in likes]
        is_here = isinstance(x, GpuTensor)
        goes = {"cpu": False, "cuda": True}.get(name, places[0].type == "cuda" if places else is_here)
        moved = held(x).to(dtypes[0] if dtypes else x.dtype)
        if goes == is_here:
            return x if moved.dtype == x.dtype else on_gpu(moved) if goes else moved
        return on_gpu(moved.clone()) if goes else moved.clone()


class Stream:
    def __init__(self, device: Any = DEVICE) -> None:
        self.device = device

    def wait_event(self, event: Any) -> None: ...


class Event:
    def __init__(self, **_: Any) -> None: ...
    def record(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, other: Event) -> float:
        return 0.001


@contextmanager
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a GPU: a real one if there is one."""
    if torch.cuda.is_available():
        yield
        return
    launch = interpreter.GridExecutor.__call__

    def call(executor: Any, *args: Any, **kwargs: Any) -> None:
        for each in tree_leaves((args, kwargs)):
            if isinstance(each, torch.Tensor):
                assert isinstance(each, GpuTensor), f"{executor.fn.__name__}: {tuple(each.shape)} is in main memory"
        launch(executor, *held(args), **held(kwargs))

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", call)
    stream = Stream()
    properties = SimpleNamespace(multi_processor_count=1)
    fakes: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda *_: "Simulated GPU",
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (TOTAL, TOTAL),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 2**20,
        "reset_peak_memory_stats": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "current_stream": lambda *_: stream,
        "Stream": Stream,
        "Event": Event,
        "stream": lambda _: nullcontext(),
        "cudart": lambda: SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda _: 0),
        "check_error": lambda _: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(on_triton, "_COLUMNS", 32)  # the interpreter takes fewer programs
    monkeypatch.setattr("quire.devices._GPU_FILES", ("/",))
    run = threading.Thread.run

    def run_placed(thread: threading.Thread) -> None:
        with Placement():
            run(thread)

    monkeypatch.setattr(threading.Thread, "run", run_placed)
    with Placement():
        yield


# -- CUDA graphs --------------------------------------------------------------------------------------------------


class FakeGraph(TorchDispatchMode):
    """Records in its context, where launches compute nothing. A later replay computes everything again, into the same
    tensors."""

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
        self._steps.append(run)
        self.num_launches += 1

    def replay(self) -> None:
        self.num_replays += 1
        for step in self._steps:
            step()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


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
