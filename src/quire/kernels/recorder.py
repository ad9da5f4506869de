"""The kernel calls of a pass, noted while it is computed, so that they can be made again without Python between them.

A product sends its weights through the caches, so that the interpreter which calls the next kernel begins cold: 30 to
100 µs a call, where norms, rotations and a short context's attention take a few. `csrc/pass.h` makes the calls instead.
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
#: What torch may do in a pass besides: it moves no bytes.
_VIEWS = (
    "aten::view", "aten::_unsafe_view", "aten::reshape", "aten::split_with_sizes", "aten::split", "aten::slice",
    "aten::select", "aten::as_strided", "aten::unsqueeze", "aten::squeeze", "aten::unbind", "aten::alias",
)  # fmt: skip

_here = threading.local()


def call_kernel(function: Any, arguments: ctypes.Structure) -> None:
    """Call a function of a library that takes one structure. What it points to must outlive the pass."""
    function(ctypes.byref(arguments))
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.note(function, arguments)


def new_output(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialized main memory for what a kernel computes: that of the pass, if one is being recorded."""
    recorder = getattr(_here, "recorder", None)
    return torch.empty(shape, dtype=dtype, device="cpu") if recorder is None else recorder.memory.take(shape, dtype)


def begin_layer() -> None:
    """From here on what the layer before the last has computed is not needed any more."""
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.memory.begin_layer()


class PassMemory:
    """What passes compute between their first and last calls, one pass at a time.

    A pass's inputs and its layers' outputs have parts of their own; of the latter there are two, in turns, so that a
    layer reads what the one before it has left.
    """

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
        elif not self._part.is_empty:  # an identity left everything where it was
            self._part = second if self._part is first else first
            self._part.reset()

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self._part.take(shape, dtype)

    @property
    def num_bytes(self) -> int:
        return sum(chunk.numel() for part in self._parts for chunk in part.chunks)


class _Arena:
    """Memory that is given out piece by piece, and all at once again. It grows by chunks that stay where they are."""

    def __init__(self) -> None:
        self.chunks: list[Tensor] = []
        self.reset()

    def reset(self) -> None:
        self._chunk = self._at = 0
        self.is_empty = True

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        num_bytes = dtype.itemsize
        for size in shape:
            num_bytes *= size
        while self._chunk < len(self.chunks) and self._at + num_bytes > self.chunks[self._chunk].numel():
            self._chunk, self._at = self._chunk + 1, 0
        if self._chunk == len(self.chunks):
            # Python's own memory: a tensor's would be an operation of the pass.
            memory = bytearray(max(num_bytes, _CHUNK_BYTES) + _LINE)
            first = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _LINE
            self.chunks.append(torch.frombuffer(memory, dtype=torch.uint8, offset=first))
        start, self._at = self._at, self._at + -(-num_bytes // _LINE) * _LINE
        self.is_empty = False
        return self.chunks[self._chunk][start : start + num_bytes].view(dtype).view(*shape)


class KernelCall(NamedTuple):
    function: Any  #: of a library, `function.__name__` in its interface
    arguments: Any  #: its structure


class PassRecorder(TorchDispatchMode):
    """While it is entered, this thread's kernel calls are noted, and whether torch computes anything itself.

    Args:
        memory: for the pass.
    """

    def __init__(self, memory: PassMemory) -> None:
        super().__init__()
        self.memory = memory
        self.other: str | None = None  #: an operation of torch's that would be missing from the pass
        self._calls: list[KernelCall] = []

    def __enter__(self) -> PassRecorder:
        self.memory.begin_pass()
        _here.recorder = self
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        _here.recorder = None
        super().__exit__(*error)

    def note(self, function: Any, arguments: ctypes.Structure) -> None:
        self._calls.append(KernelCall(function, type(arguments).from_buffer_copy(arguments)))

    def finish(self, library: ctypes.CDLL, inputs: Sequence[Tensor], output: Tensor) -> RecordedPass:
        """Args:
        library: of any level.
        inputs: which the pass read, in its memory.
        output: the same.
        """
        return RecordedPass(library, self._calls, inputs, output)


def _take_operation(self: PassRecorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    name = func._schema.name
    if name not in _VIEWS:
        self.other = name
    return func(*args, **(kwargs or {}))


# Given to the class only now: one that it is made with is wrapped by torch, and its first call imports 800 modules.
PassRecorder.__torch_dispatch__ = _take_operation  # type: ignore[method-assign, assignment]


class _CallEntry(ctypes.Structure):
    """`QuireCall` in csrc/pass.h."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p))


class RecordedPass:
    """Calls in their order, as `PassRecorder.finish` makes them. Whatever they point to must still be there."""

    def __init__(
        self, library: ctypes.CDLL, calls: Sequence[KernelCall], inputs: Sequence[Tensor], output: Tensor
    ) -> None:
        self.calls = tuple(calls)
        self.seconds: ctypes.Array[ctypes.c_double] | None = None  #: by call, added up; None is not measured
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
