"""Collectives of ranks on one machine through shared memory. Waits call `check`, which raises if a rank has ended."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from quire.kernels.collective import Collective, collective_library
from quire.kernels.loaded import DTYPES
from quire.ops.arrays import Array, as_numpy, name_of, takes_tensors, widen

_WAIT_S = 0.05  # between two calls of `check`


class SharedMemory:
    """Memory shared by a machine's ranks, made together. OSError on all if one cannot map it or has no kernel."""

    def __init__(
        self, rank: int, size: int, exchange: Callable[[str, object], list[object]], check: Callable[[], None]
    ) -> None:
        self._check = check
        self._size = size
        library = collective_library()
        num_bytes = Collective.bytes_for(size)
        own = _make_file(num_bytes) if rank == 0 and library is not None else None
        try:
            path = exchange("shared memory", own)[0]
            memory = None if path is None or library is None else _map(str(path), num_bytes)
            are_mapped = all(exchange("shared memory is mapped", memory is not None))
        finally:
            if own is not None:
                os.unlink(own)  # no file remains, however the ranks end
        if memory is None or library is None or not are_mapped:
            raise OSError("not all ranks have shared memory and a kernel for it")
        self._memory = memory
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._collective = Collective(library, address, rank, size, _WAIT_S)

    def all_reduce(self, x: Array) -> None:
        """Sum a contiguous array of floats over all ranks, in place."""
        dtype = name_of(x.dtype)
        if dtype not in DTYPES:
            x = as_numpy(x)
            self.all_reduce(total := widen(x))
            x[...] = total
            return
        address, count = (x.ctypes.data, x.size) if isinstance(x, np.ndarray) else (x.data_ptr(), x.numel())
        while not self._collective.all_reduce(dtype, address, count):
            self._check()

    @takes_tensors
    def all_gather(self, x: Array) -> Array:
        """Gather an array along its last dimension."""
        x = np.ascontiguousarray(x)
        out = np.empty((*x.shape[:-1], self._size * x.shape[-1]), dtype=x.dtype)
        row_bytes = x.shape[-1] * x.itemsize
        num_rows = x.size // max(1, x.shape[-1])
        while not self._collective.all_gather(x.ctypes.data, out.ctypes.data, num_rows, row_bytes):
            self._check()
        return out


def _make_file(num_bytes: int) -> str | None:
    """Create a private file of zeros, in memory if there is room; None without any."""
    for place in ("/dev/shm", tempfile.gettempdir()):
        path = Path(place) / f"quire-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, num_bytes)  # missing room is an error here instead of a SIGBUS later
                return str(path)
            except OSError:
                os.unlink(path)
            finally:
                os.close(descriptor)
    return None


def _map(path: str, num_bytes: int) -> mmap.mmap | None:
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, num_bytes)
        finally:
            os.close(descriptor)
    return None
