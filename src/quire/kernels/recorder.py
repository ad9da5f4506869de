"""Record the kernel calls of a pass, to repeat them without Python in between.

Each product's weights evict the interpreter from the caches, which then needs 30 to 100 µs to call the next kernel;
norms, rotations and attention over short contexts take only a few. `csrc/pass.h` repeats the calls.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_LINE = 64
_CHUNK_BYTES = 2**20
#: Torch operations allowed in a pass: they move no bytes.
_VIEWS = (
    "aten::view", "aten::_unsafe_view", "aten::reshape", "aten::split_with_sizes", "aten::split", "aten::slice",
    "aten::select", "aten::as_strided", "aten::unsqueeze", "aten::squeeze", "aten::unbind", "aten::alias",
)  # fmt: skip

_here = threading.local()


def call_kernel(function: Any, arguments: ctypes.Structure) -> None:
    """Call a library's function with one structure. Its pointers must stay valid as long as the pass."""
    function(ctypes.byref(arguments))
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.record(function, arguments)


def new_output(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Allocate a kernel's output, in the pass's memory during a recording."""
    recorder = getattr(_here, "recorder", None)
    return torch.empty(shape, dtype=dtype, device="cpu") if recorder is None else recorder.memory.allocate(shape, dtype)


def begin_layer() -> None:
    """Start a layer, which frees the memory of the layer before the last."""
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.memory.begin_layer()


class PassMemory:
    """Memory for one pass at a time: an arena for inputs, and two for results, which alternate between layers."""

    def __init__(self) -> None:
        self._parts = [_Arena(), _Arena(), _Arena()]
        self._part = self._parts[0]

    def begin_pass(self) -> None:
        for part in self._parts:
            part.reset()
        self._part = self._parts[0]

    def begin_layer(self) -> None:
        inputs, first, second = self._parts
        if self._part is inputs:
            self._part = first
        elif not self._part.is_empty:  # an identity has written nothing
            self._part = second if self._part is first else first
            self._part.reset()

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self._part.allocate(shape, dtype)

    @property
    def num_bytes(self) -> int:
        return sum(chunk.numel() for part in self._parts for chunk in part.chunks)


class _Arena:
    """Memory that is allocated piece by piece and freed at once. It grows by chunks, which do not move."""

    def __init__(self) -> None:
        self.chunks: list[Tensor] = []
        self.reset()

    def reset(self) -> None:
        self._chunk = self._at = 0
        self.is_empty = True

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        num_bytes = dtype.itemsize
        for size in shape:
            num_bytes *= size
        while self._chunk < len(self.chunks) and self._at + num_bytes > self.chunks[self._chunk].numel():
            self._chunk, self._at = self._chunk + 1, 0
        if self._chunk == len(self.chunks):
            # Python's memory, since creating a tensor would be an operation of the pass.
            memory = bytearray(max(num_bytes, _CHUNK_BYTES) + _LINE)
            first = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _LINE
            self.chunks.append(torch.frombuffer(memory, dtype=torch.uint8, offset=first))
        start, self._at = self._at, self._at + -(-num_bytes // _LINE) * _LINE
        self.is_empty = False
        return self.chunks[self._chunk][start : start + num_bytes].view(dtype).view(*shape)


class KernelCall(NamedTuple):
    function: Any
    arguments: Any  #: a ctypes structure


class PassRecorder(TorchDispatchMode):
    """A context that records this thread's kernel calls, and detects operations of torch."""

    def __init__(self, memory: PassMemory) -> None:
        super().__init__()
        self.memory = memory
        self.other: str | None = None  #: an operation of torch, which the recording lacks
        self._calls: list[KernelCall] = []

    def __enter__(self) -> PassRecorder:
        self.memory.begin_pass()
        _here.recorder = self
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        _here.recorder = None
        super().__exit__(*error)

    def record(self, function: Any, arguments: ctypes.Structure) -> None:
        self._calls.append(KernelCall(function, type(arguments).from_buffer_copy(arguments)))

    def finish(self, library: ctypes.CDLL, inputs: Sequence[Tensor], output: Tensor) -> RecordedPass:
        """Return the recording of a pass over inputs and output in this recorder's memory."""
        return RecordedPass(library, self._calls, inputs, output)


def _dispatch(self: PassRecorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    name = func._schema.name
    if name not in _VIEWS:
        self.other = name
    return func(*args, **(kwargs or {}))


# Assigned here, since torch wraps a method of the class body, whose first call imports 800 modules.
PassRecorder.__torch_dispatch__ = _dispatch  # type: ignore[method-assign, assignment]


class _CallEntry(ctypes.Structure):
    """`QuireCall` in csrc/pass.h."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p))


class RecordedPass:
    """A recorded sequence of kernel calls. All memory that they point to must stay valid."""

    def __init__(
        self, library: ctypes.CDLL, calls: Sequence[KernelCall], inputs: Sequence[Tensor], output: Tensor
    ) -> None:
        self.calls = tuple(calls)
        self.seconds: ctypes.Array[ctypes.c_double] | None = None  #: total by call; None disables measuring
        self._inputs, self._output = tuple(inputs), output
        self._run = library["quire_run"]
        self._run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._run.restype = None
        entries = [
            _CallEntry(ctypes.cast(each.function, ctypes.c_void_p), ctypes.addressof(each.arguments)) for each in calls
        ]
        self._table = (_CallEntry * len(calls))(*entries)

    def __call__(self, *inputs: Tensor) -> Tensor:
        for to, given in zip(self._inputs, inputs, strict=True):
            to.copy_(given)
        self._run(self._table, len(self._table), self.seconds)
        return self._output.clone()
