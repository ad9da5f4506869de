"""Replicas of a tiny real model in this process, and a handle that calls them as Ray Serve's does."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from async_engine.harness import make
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.host import EngineHost, ThreadHost
from quire.cluster.placement import Placement, ReplicaCall
from quire.cluster.replica import ModelReplica
from quire.cluster.replicas_host import ReplicasHost
from quire.cluster.share import ReplicaShare
from quire.config import EngineConfig
from quire.engine.engine import Engine

CONFIG = EngineConfig("random:tiny", use_tqdm=False)


class Died(Exception):
    """An error like Ray's for a dead actor."""


class Replica(ModelReplica):
    """A replica with an engine in a thread, and with a sudden end."""

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self.made = make_engine
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_stats: dict[str, Any] | None = None  #: of a replica that is cut off
        super().__init__("tiny", CONFIG, share=ReplicaShare(1, 1, 1, 0), hang_timeout_s=100, load_wait_s=100)

    def _make_host(self, name: str, make_engine: Callable[[], Engine], hang_timeout_s: float) -> EngineHost:
        return ThreadHost(name, self.made)

    @property
    def engine(self) -> AsyncEngine:
        return self._engine

    async def frames(self, data: bytes) -> AsyncIterator[bytes]:
        """Yield a request's frames while this replica lives; cancelling the wait cancels the call."""
        frames = self.generate(data)
        while True:
            taken = asyncio.ensure_future(anext(frames))
            try:
                await asyncio.wait([taken, self.death], return_when=asyncio.FIRST_COMPLETED)
                if self.death.done():
                    raise Died("the actor died")
                if self.last_stats is not None:
                    await asyncio.Event().wait()
                yield await taken
            except StopAsyncIteration:
                return
            finally:
                taken.cancel()


class Cluster:
    """Replicas by name, which a test adds, and the requests in order by replica."""

    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}
        self.calls: list[str] = []
        self.placement: Placement | None = None  #: of the first call

    async def add(self, name: str, make_engine: Callable[[], Engine] = make) -> Replica:
        replica = Replica(make_engine)
        self.replicas[name] = replica
        return replica

    def kill(self, name: str) -> None:
        self.replicas.pop(name).death.set_result(None)

    def cut_off(self, name: str) -> None:
        """A replica's machine is out of reach: no report and no token arrives, and no error."""
        self.replicas[name].last_stats = self.replicas[name].record_routing_stats()

    def update(self, placement: Placement) -> dict[str, Any]:
        stats = {name: each.last_stats or each.record_routing_stats() for name, each in self.replicas.items()}
        placement.update(stats)
        return stats

    async def find(self, call: ReplicaCall) -> Replica:
        """Choose a replica as Serve's router does."""
        while True:
            self.placement = call.placement
            name = call.choose(self.update(call.placement))
            if name is not None:
                return self.replicas[name]
            await asyncio.sleep(0.01)

    # -- a deployment's handle -----------------------------------------------------------------------------------------

    def options(self, *, method_name: str, stream: bool) -> Cluster:
        assert (method_name, stream) == ("generate", True)
        return self

    def remote(self, call: ReplicaCall) -> Frames:
        return Frames(self, call)

    @property
    def facts(self) -> Any:
        class Facts:
            async def remote(_, call: ReplicaCall) -> Any:
                return await (await self.find(call)).facts(pickle.loads(pickle.dumps(call)))

        return Facts()


class Frames:
    """A replica's answer, as its caller sees it."""

    def __init__(self, cluster: Cluster, call: ReplicaCall) -> None:
        self._cluster = cluster
        self._call = call
        self._frames: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> bytes:
        if self._frames is None:
            replica = await self._cluster.find(self._call)
            assert self._call.replica is not None
            self._cluster.calls.append(self._call.replica)
            self._frames = replica.frames(pickle.loads(pickle.dumps(self._call)))
        return await anext(self._frames)

    def cancel(self) -> None:
        """Cancel the call after its `__anext__` was cancelled."""


@asynccontextmanager
async def cluster(starts_on_demand: bool = False, **options: Any) -> AsyncIterator[tuple[Cluster, AsyncEngine]]:
    """A cluster without replicas, and the engine in front of it."""
    found = Cluster()
    host_options = {name: options.pop(name) for name in ("policy", "on_metrics") if name in options}
    if "load_wait_s" in options:
        host_options["load_wait_s"] = options["load_wait_s"]
    host = ReplicasHost(
        "tiny", found, is_dead=lambda error: isinstance(error, Died), starts_on_demand=starts_on_demand, **host_options
    )
    engine = AsyncEngine(host, **options)
    engine.start()
    try:
        yield found, engine
    finally:
        engine.shutdown()
        for replica in found.replicas.values():
            replica.engine.shutdown()
