"""The group of a model's ranks: rendezvous, collectives on arrays, exchange of other values."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from quire.models.parallel import ParallelGroup
from quire.ops.arrays import Array, as_numpy, as_tensor, is_numpy
from quire.runner.ranks.shared_memory import SharedMemory

logger = logging.getLogger("quire")

_POLL_S = 0.01
_JOIN_S = 300.0  # until all ranks have joined; they import first, and read weights afterwards
_FOREVER = timedelta(days=365)  # a rank may wait for another rank's files


class Store(Protocol):
    """Text by key, shared by all ranks; torch's stores are some."""

    def set(self, key: str, value: str) -> None: ...
    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are set."""
        ...

    def get(self, key: str) -> bytes: ...


class DirectoryStore:
    """A file per key in a private directory, complete as soon as it has its name."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._path.mkdir(mode=0o700, exist_ok=True)

    def _file(self, key: str) -> Path:
        return self._path / key.encode().hex()

    def set(self, key: str, value: str) -> None:
        file = self._file(key)
        written = file.with_suffix(".part")  # one rank writes a key
        written.write_text(value)
        os.replace(written, file)

    def check(self, keys: list[str]) -> bool:
        return all(self._file(key).exists() for key in keys)

    def get(self, key: str) -> bytes:
        return self._file(key).read_bytes()


class Rendezvous(Protocol):
    """A meeting point of ranks; survives pickling."""

    def store(self, rank: int, size: int) -> Store:
        """Open the store that all ranks share."""
        ...

    def torch_store(self, store: Store, size: int) -> Any:
        """Return a store of torch for the ranks that have opened `store`."""
        ...

    def address(self) -> str:
        """This machine's address, as seen from the other ranks."""
        ...


@dataclass(frozen=True)
class FileRendezvous:
    """Rendezvous on one machine through a directory that no other user may write, without an open port."""

    path: str

    def store(self, rank: int, size: int) -> Store:
        return DirectoryStore(self.path)

    def torch_store(self, store: Store, size: int) -> Any:
        return _distributed().FileStore(f"{self.path}/torch", size)

    def address(self) -> str:
        return "127.0.0.1"


@dataclass(frozen=True)
class TcpRendezvous:
    """Rendezvous of several machines in a trusted network: there is no authentication."""

    host: str
    port: int

    def store(self, rank: int, size: int) -> Store:
        store: Store = _distributed().TCPStore(self.host, self.port, size, rank == 0, timedelta(seconds=_JOIN_S))
        return store

    def torch_store(self, store: Store, size: int) -> Any:
        return store

    def address(self) -> str:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((self.host, self.port))  # sends nothing, but selects the address
            return str(way.getsockname()[0])


class RankGroup(ParallelGroup):
    """See `ParallelGroup`. Arrays are on the group's device: cpu (shared memory on one machine, otherwise gloo) or cuda
    (nccl). `exchange` calls `check`, which raises if a rank has ended. ConnectionError if ranks are missing or cannot
    reach each other."""

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
            self._memory = self._share_memory(device)
            if self._memory is None:
                self._backend = _make_backend(rendezvous.torch_store(self._store, size), rank, size, rendezvous, device)
            if device == "cuda":
                import torch

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

    def all_reduce(self, x: Array) -> Array:
        if self._memory is not None:
            self._memory.all_reduce(x)
        else:
            self._backend.allreduce([as_tensor(x)]).wait()
        return x

    def all_gather(self, x: Array) -> Array:
        if self._memory is not None:
            return self._memory.all_gather(x)
        import torch

        own = as_tensor(x).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._backend.allgather([parts], [own]).wait()
        gathered = torch.cat(parts, dim=-1)
        return as_numpy(gathered) if is_numpy(x) else gathered

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


def _distributed() -> Any:
    """Import torch.distributed, whose stubs are incomplete."""
    try:
        import torch.distributed as distributed
    except ImportError:
        raise ValueError("ranks on several machines need torch: pip install 'quire-llm[torch]'") from None
    return distributed


def _make_backend(store: Any, rank: int, size: int, rendezvous: Rendezvous, device: str) -> Any:
    """Make a gloo or nccl backend without torch's process-wide group, since ranks may be threads."""
    backends = _distributed()
    if device == "cuda":
        options = backends.ProcessGroupNCCL.Options()
        options._timeout = _FOREVER
        return backends.ProcessGroupNCCL(backends.PrefixStore("nccl", store), rank, size, options)
    options = backends.ProcessGroupGloo._Options()
    options._devices = [backends.ProcessGroupGloo.create_device(hostname=rendezvous.address())]
    options._timeout = _FOREVER
    options._threads = 1
    return backends.ProcessGroupGloo(backends.PrefixStore("gloo", store), rank, size, options)
