"""The group of a model's ranks: rendezvous, collectives on tensors, exchange of other values."""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as distributed
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from quire.models.parallel import ParallelGroup
from quire.runner.ranks.shared_memory import SharedMemory

logger = logging.getLogger("quire")

_POLL_S = 0.01
_JOIN_S = 300.0  # until all ranks have joined; they import first, and read weights afterwards
_FOREVER = timedelta(days=365)  # a rank may wait for another rank's files


class Rendezvous(Protocol):
    """A meeting point of ranks; survives pickling."""

    def store(self, rank: int, size: int) -> Store:
        """Open the store that all ranks share."""
        ...

    def address(self) -> str:
        """This machine's address, as seen from the other ranks."""
        ...


@dataclass(frozen=True)
class FileRendezvous:
    """Rendezvous on one machine through a file that no other user may write, without an open port."""

    path: str

    def store(self, rank: int, size: int) -> Store:
        return FileStore(self.path, size)

    def address(self) -> str:
        return "127.0.0.1"


@dataclass(frozen=True)
class TcpRendezvous:
    """Rendezvous of several machines in a trusted network: there is no authentication."""

    host: str
    port: int

    def store(self, rank: int, size: int) -> Store:
        return TCPStore(self.host, self.port, size, rank == 0, timedelta(seconds=_JOIN_S))

    def address(self) -> str:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((self.host, self.port))  # sends nothing, but selects the address
            return str(way.getsockname()[0])


class RankGroup(ParallelGroup):
    """See `ParallelGroup`. Tensors are on the group's device: cpu (gloo) or cuda (nccl). `exchange` calls `check`,
    which raises if a rank has ended. ConnectionError if ranks are missing or cannot reach each other."""

    def __init__(
        self, rank: int, size: int, rendezvous: Rendezvous, device: str = "cpu", check: Callable[[], None] | None = None
    ) -> None:
        super().__init__(rank, size)
        self._check = check
        self._has_left = threading.Event()
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        try:
            self._store = rendezvous.store(rank, size)
            self.exchange("here", None)
            self._backend = _make_backend(self._store, rank, size, rendezvous.address(), device)
            self._memory = self._share_memory(device)
            if device == "cuda":
                self.all_reduce(torch.zeros(1, device=device))  # nccl connects at the first collective
        except (RuntimeError, ValueError) as error:
            raise ConnectionError(f"rank {rank} of {size} cannot join the others: {error}") from error

    def _share_memory(self, device: str) -> SharedMemory | None:
        """Set up shared memory if all ranks are on one machine and support it; it is faster than gloo."""
        machines = self.exchange("machine", (device, _machine()))
        if device != "cpu" or len(set(machines)) > 1:
            return None
        try:
            return SharedMemory(self.rank, self.size, self.exchange, self._check_group)
        except OSError as error:
            logger.info("ranks: %s; gloo is used", error)
            return None

    def _check_group(self) -> None:
        if self._has_left.is_set():
            raise ConnectionError("this rank has left its group")
        if self._check is not None:
            self._check()

    def all_reduce(self, x: Tensor) -> Tensor:
        if self._memory is not None and self._memory.can_add(x):
            self._memory.all_reduce(x)
        else:
            self._backend.allreduce([x]).wait()
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        if self._memory is not None and x.is_cpu:
            return self._memory.all_gather(x)
        parts = [torch.empty_like(x) for _ in range(self.size)]
        self._backend.allgather([parts], [x]).wait()
        return torch.cat(parts, dim=-1)

    def exchange(self, name: str, value: Any) -> list[Any]:
        """Exchange picklable values, in order of ranks, under the same `name` on all. Raises errors of `check`;
        ConnectionError if this rank has left."""
        with self._lock:
            self._counts[name] += 1
            prefix = f"{name}#{self._counts[name]}"
        self._store.set(f"{prefix}/{self.rank}", pickle.dumps(value).hex())
        keys = [f"{prefix}/{rank}" for rank in range(self.size)]
        while not self._store.check(keys):
            self._has_left.wait(_POLL_S)
            self._check_group()
        return [pickle.loads(bytes.fromhex(self._store.get(key).decode())) for key in keys]

    def leave(self) -> None:
        """End all waits in `exchange`, now and later, with an error."""
        self._has_left.set()


def _machine() -> str:
    """An id of this machine's boot; containers on it have the same."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""


def _make_backend(store: Store, rank: int, size: int, address: str, device: str) -> Any:
    """Make a gloo or nccl backend without torch's process-wide group, since ranks may be threads."""
    backends: Any = distributed  # incomplete stubs
    if device == "cuda":
        options = backends.ProcessGroupNCCL.Options()
        options._timeout = _FOREVER
        return backends.ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
    options = backends.ProcessGroupGloo._Options()
    options._devices = [backends.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = _FOREVER
    options._threads = 1
    return backends.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, options)
