"""How the ranks of one model meet, add up tensors, and agree on what is no tensor."""

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
_JOIN_S = 300.0  # until all ranks have come; they import first, and do not read weights before
_FOREVER = timedelta(days=365)  # a rank may wait for another's files, which takes as long as it takes


class Rendezvous(Protocol):
    """Where ranks meet; survives pickling."""

    def store(self, rank: int, size: int) -> Store:
        """A store that all ranks see."""
        ...

    def address(self) -> str:
        """Of this machine, as the other ranks see it."""
        ...


@dataclass(frozen=True)
class FileRendezvous:
    """For ranks on one machine: a file that nobody else may write, and no port that others could reach.

    Args:
        path: of a file that is not there yet, in a directory of this user's own.
    """

    path: str

    def store(self, rank: int, size: int) -> Store:
        return FileStore(self.path, size)

    def address(self) -> str:
        return "127.0.0.1"


@dataclass(frozen=True)
class TcpRendezvous:
    """For ranks on several machines, in a network that nobody else is in: nothing here asks for a password.

    Args:
        host: of rank 0.
        port: of that host, which rank 0 listens at.
    """

    host: str
    port: int

    def store(self, rank: int, size: int) -> Store:
        return TCPStore(self.host, self.port, size, rank == 0, timedelta(seconds=_JOIN_S))

    def address(self) -> str:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((self.host, self.port))  # sends nothing; it says by which of its addresses this machine would
            return str(way.getsockname()[0])


class RankGroup(ParallelGroup):
    """Ranks that have met. See `ParallelGroup`; tensors must be on the device that it is for.

    Args:
        rendezvous: of all of them.
        device: cpu (by gloo) or cuda (by nccl).
        check: called while `exchange` waits; may raise, so that nobody waits for a rank that has ended.

    Raises:
        ConnectionError: not all ranks came, or they do not reach each other.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        rendezvous: Rendezvous,
        device: str = "cpu",
        check: Callable[[], None] | None = None,
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
                self.all_reduce(torch.zeros(1, device=device))  # nccl meets by the store, but not before this
        except (RuntimeError, ValueError) as error:
            raise ConnectionError(f"rank {rank} of {size} cannot join the others: {error}") from error

    def _share_memory(self, device: str) -> SharedMemory | None:
        """The faster way between ranks of one machine, where all of them have it."""
        machines = self.exchange("machine", (device, _machine()))
        if device != "cpu" or len(set(machines)) > 1:
            return None
        try:
            return SharedMemory(self.rank, self.size, self.exchange, self._look)
        except OSError as error:
            logger.info("ranks: %s; gloo is used", error)
            return None

    def _look(self) -> None:
        if self._has_left.is_set():
            raise ConnectionError("this rank leaves the others")
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
        """All ranks' values, in the order of the ranks; waits until every rank has come to the same call.

        Args:
            name: the same on every rank. It may be used again, as often on each.
            value: survives pickling.

        Raises:
            ConnectionError: this rank leaves.
            Exception: whatever `check` raised.
        """
        with self._lock:
            self._counts[name] += 1
            prefix = f"{name}#{self._counts[name]}"
        self._store.set(f"{prefix}/{self.rank}", pickle.dumps(value).hex())
        keys = [f"{prefix}/{rank}" for rank in range(self.size)]
        while not self._store.check(keys):
            self._has_left.wait(_POLL_S)
            self._look()
        return [pickle.loads(bytes.fromhex(self._store.get(key).decode())) for key in keys]

    def leave(self) -> None:
        """Whoever waits in `exchange` here gets an error, now and later."""
        self._has_left.set()


def _machine() -> str:
    """What no two machines that run have in common; ranks of one may still be kept apart, by containers."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return ""


def _make_backend(store: Store, rank: int, size: int, address: str, device: str) -> Any:
    """gloo or nccl, with nothing of torch's own groups, of which a process has one: here ranks may be threads."""
    backends: Any = distributed  # whose stubs lack most of them
    if device == "cuda":
        options = backends.ProcessGroupNCCL.Options()
        options._timeout = _FOREVER
        return backends.ProcessGroupNCCL(PrefixStore("nccl", store), rank, size, options)
    options = backends.ProcessGroupGloo._Options()
    options._devices = [backends.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = _FOREVER
    options._threads = 1
    return backends.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, options)
