"""Collectives of ranks on one machine through shared memory. Waits call `check`, which raises if a rank has ended."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from quire.kernels.collective import DTYPES, Collective, collective_library

_WAIT_S = 0.05  # between two calls of `check`
_PLACE = Path("/dev/shm")
_KINDS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
assert set(_KINDS.values()) == set(DTYPES)


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

    def can_add(self, x: Tensor) -> bool:
        return x.is_cpu and x.dtype in _KINDS

    def all_reduce(self, x: Tensor) -> None:
        kind, address, count = _KINDS[x.dtype], x.data_ptr(), x.numel()
        while not self._collective.all_reduce(kind, address, count):
            self._check()

    def all_gather(self, x: Tensor) -> Tensor:
        """Gather a contiguous CPU tensor along its last dimension."""
        out = torch.empty((*x.shape[:-1], self._size * x.shape[-1]), dtype=x.dtype)
        row_bytes = x.shape[-1] * x.element_size()
        num_rows = x.numel() // max(1, x.shape[-1])
        while not self._collective.all_gather(x.data_ptr(), out.data_ptr(), num_rows, row_bytes):
            self._check()
        return out


def _make_file(num_bytes: int) -> str | None:
    """Create a private file of zeros in memory; None if there is no room."""
    path = _PLACE / f"quire-{secrets.token_hex(8)}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, num_bytes)  # missing room is an error here instead of a SIGBUS later
        except OSError:
            os.unlink(path)
            return None
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return str(path)


def _map(path: str, num_bytes: int) -> mmap.mmap | None:
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            return mmap.mmap(descriptor, num_bytes)
        finally:
            os.close(descriptor)
    return None
