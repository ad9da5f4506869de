"""Record the kernel calls of a pass, to repeat them without Python in between.

Each product's weights evict the interpreter from the caches, which then needs 30 to 100 µs to call the next kernel;
norms, rotations and attention over short contexts take only a few. `csrc/pass.h` repeats the calls.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from quire.kernels.structure import address

_LINE = 64
_CHUNK_BYTES = 2**20
_ALIGNED_BYTES = 2**12  #: from this size on, a kernel's output begins a cache line

_here = threading.local()


def call_kernel(function: Any, arguments: ctypes.Structure) -> None:
    """Call a library's function with one structure. Its pointers must stay valid as long as the pass."""
    function(ctypes.byref(arguments))
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.record(function, arguments)


def new_output(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Allocate a kernel's output, in the pass's memory during a recording."""
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        return recorder.memory.allocate(shape, dtype)
    num_bytes = dtype.itemsize * math.prod(shape)
    if num_bytes < _ALIGNED_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(num_bytes + _LINE, np.uint8)
    first = -address(memory) % _LINE
    return memory[first : first + num_bytes].view(dtype).reshape(shape)


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

    def allocate(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        return self._part.allocate(shape, dtype)

    @property
    def num_bytes(self) -> int:
        return sum(chunk.nbytes for part in self._parts for chunk in part.chunks)


class _Arena:
    """Memory that is allocated piece by piece and freed at once. It grows by chunks, which do not move."""

    def __init__(self) -> None:
        self.chunks: list[np.ndarray] = []
        self.reset()

    def reset(self) -> None:
        self._chunk = self._at = 0
        self.is_empty = True

    def allocate(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        num_bytes = dtype.itemsize * math.prod(shape)
        while self._chunk < len(self.chunks) and self._at + num_bytes > self.chunks[self._chunk].nbytes:
            self._chunk, self._at = self._chunk + 1, 0
        if self._chunk == len(self.chunks):
            memory = np.empty(max(num_bytes, _CHUNK_BYTES) + _LINE, np.uint8)
            self.chunks.append(memory[-address(memory) % _LINE :])
        start, self._at = self._at, self._at + -(-num_bytes // _LINE) * _LINE
        self.is_empty = False
        piece = self.chunks[self._chunk][start : start + num_bytes]
        return piece.view(dtype).reshape(shape).view(RecordedArray)


class RecordedArray(np.ndarray):
    """An array in a pass's memory. Whatever computes with it or copies it, other than a kernel, ends the recording:
    a repeated pass would not do it."""

    def __array_finalize__(self, source: Any) -> None:
        if self.flags.owndata and isinstance(source, RecordedArray):
            _note_other("a copy")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        _note_other(ufunc.__name__)
        if (out := kwargs.get("out")) is not None:
            kwargs["out"] = tuple(_plain(each) for each in out)
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _note_other(func.__name__)
        return super().__array_function__(func, types, args, kwargs)

    def note(self, operation: str) -> None:
        """Say that something other than a kernel uses this array."""
        _note_other(operation)

    def __getitem__(self, key: Any) -> Any:
        if any(isinstance(each, np.ndarray | list) for each in (key if isinstance(key, tuple) else (key,))):
            _note_other("a selection")
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _note_other("an assignment")
        super().__setitem__(key, value)


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, RecordedArray) else x


def _note_other(operation: str) -> None:
    recorder = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.other = operation


class KernelCall(NamedTuple):
    function: Any
    arguments: Any  #: a ctypes structure


class PassRecorder:
    """A context that records this thread's kernel calls, and detects operations of numpy on their arrays."""

    def __init__(self, memory: PassMemory) -> None:
        self.memory = memory
        self.other: str | None = None  #: an operation of numpy, which the recording lacks
        self._calls: list[KernelCall] = []

    def __enter__(self) -> PassRecorder:
        self.memory.begin_pass()
        _here.recorder = self
        return self

    def __exit__(self, *error: Any) -> None:
        _here.recorder = None

    def record(self, function: Any, arguments: ctypes.Structure) -> None:
        self._calls.append(KernelCall(function, type(arguments).from_buffer_copy(arguments)))

    def finish(self, library: ctypes.CDLL, inputs: Sequence[np.ndarray], output: np.ndarray) -> RecordedPass:
        """Return the recording of a pass over inputs and output in this recorder's memory."""
        return RecordedPass(library, self._calls, inputs, output)


class _CallEntry(ctypes.Structure):
    """`QuireCall` in csrc/pass.h."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p))


class RecordedPass:
    """A recorded sequence of kernel calls. All memory that they point to must stay valid."""

    def __init__(
        self, library: ctypes.CDLL, calls: Sequence[KernelCall], inputs: Sequence[np.ndarray], output: np.ndarray
    ) -> None:
        self.calls = tuple(calls)
        self.seconds: ctypes.Array[ctypes.c_double] | None = None  #: total by call; None disables measuring
        self._inputs, self._output = tuple(map(_plain, inputs)), _plain(output)
        self._run = library["quire_run"]
        self._run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._run.restype = None
        entries = [
            _CallEntry(ctypes.cast(each.function, ctypes.c_void_p), ctypes.addressof(each.arguments)) for each in calls
        ]
        self._table = (_CallEntry * len(calls))(*entries)

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        for to, given in zip(self._inputs, inputs, strict=True):
            np.copyto(to, given)
        self._run(self._table, len(self._table), self.seconds)
        return self._output.copy()
