"""Ranks on several machines: Ray actors in the replica's placement group, and the first in the engine's process."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from quire import __version__
from quire.cluster.share import ReplicaShare
from quire.cluster.wire import check_version
from quire.config import EngineConfig
from quire.runner.ranks.guard import StepGuard
from quire.runner.ranks.interface import RankLost

if TYPE_CHECKING:
    from quire.engine.engine import Engine


@dataclass(frozen=True)
class MachineGroup:
    """The machines of a replica's ranks: our address, and the placement group in hex, a bundle per machine."""

    address: str
    host: str
    group: str
    share: ReplicaShare

    @classmethod
    def of_this_actor(cls, share: ReplicaShare) -> MachineGroup:
        import ray

        group = ray.util.get_current_placement_group()
        assert group is not None, "Serve creates one"
        context = ray.get_runtime_context()
        return cls(context.gcs_address, ray.util.get_node_ip_address(), group.id.hex(), share)


def start_engine(config: EngineConfig, machines: MachineGroup, *, memory_share: float) -> Engine:
    """As `startup.start_engine`, with ranks on several machines. May be called again after a rank was lost."""
    _join(machines.address)
    size, ranks_here = machines.share.num_ranks, machines.share.ranks_a_machine
    others = [ActorRank(rank, machines) for rank in range(1, size)]  # they start while this process imports
    try:
        from quire.assembly.rank import ModelRank, RankOptions
        from quire.assembly.start import start_on_ranks
        from quire.loading.source import resolve_model
        from quire.models.parallel import ModelSplit, ParallelGroup
        from quire.runner.ranks.group import TcpRendezvous

        source = resolve_model(config.model, load_format=config.load_format, hub=config.hub)
        ModelSplit(source.config, ParallelGroup(0, size))
        rendezvous = TcpRendezvous(machines.host, _free_port())
        options = RankOptions(memory_share=memory_share, ranks_here=ranks_here, is_progressive=True)
        for rank, actor in enumerate(others, start=1):
            actor.build(partial(ModelRank, config, rank, size, rendezvous, options))
        return start_on_ranks(config, others, rendezvous, options)
    except BaseException:
        for actor in others:
            actor.end()
        raise


def _join(address: str) -> None:
    import logging

    import ray

    if ray.is_initialized():
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    if threading.current_thread() is threading.main_thread():  # Ray replaces them
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


class RankActor:
    def __init__(self, version: str) -> None:
        check_version(version)
        self._guard = StepGuard()
        self._worker: Any = None

    def build(self, make: Callable[[], Any]) -> None:
        self._worker = make()

    def ask(self, method: str, args: tuple[Any, ...]) -> Any:
        self._guard.cancel()
        try:
            return getattr(self._worker, method)(*args)
        except Exception:
            self._guard.start()
            raise

    def live(self) -> None:
        """Never return, so that waiting callers notice when this process ends."""
        threading.Event().wait()


class ActorRank:
    """See `RankHandle`: the engine's handle of a `RankActor`."""

    def __init__(self, rank: int, machines: MachineGroup) -> None:
        import ray
        from ray.util.placement_group import PlacementGroup, PlacementGroupID
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._name = f"rank {rank} of {machines.share.num_ranks}"
        self._end_words = f"{self._name}, a Ray actor, has ended"
        self._why: str | None = None
        self._is_ended = False
        self._listeners: list[Callable[[str], None]] = []
        self._lock = threading.Lock()
        group = PlacementGroup(PlacementGroupID(bytes.fromhex(machines.group)))
        actor = ray.remote(concurrency_groups={"life": 1})(RankActor).options(
            **machines.share.of_rank(),
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank // machines.share.ranks_a_machine),
        )
        self._actor = actor.remote(__version__)
        life = self._actor.live.options(concurrency_group="life").remote()
        threading.Thread(target=self._wait_for_end, args=(life,), name=f"watch {self._name}", daemon=True).start()
        self._built: Callable[[float | None], Any] | None = None

    def build(self, make: Callable[[], Any]) -> None:
        self._built = self._waiting(self._actor.build.remote(make))

    def wait_built(self, timeout_s: float | None) -> None:
        assert self._built is not None, "build was not called"
        self._built(timeout_s)

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        if self._why is not None:
            raise RankLost(self._why)
        return self._waiting(self._actor.ask.remote(method, args))

    def _waiting(self, answer: Any) -> Callable[[float | None], Any]:
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        def wait(timeout_s: float | None) -> Any:
            try:
                return ray.get(answer, timeout=timeout_s)
            except GetTimeoutError:
                raise TimeoutError(f"{self._name} has not answered for {timeout_s:g} s") from None
            except RayActorError:
                raise RankLost(self._end_words) from None
            except RayTaskError as error:
                raise error.cause from None

        return wait

    def _wait_for_end(self, life: Any) -> None:
        import ray

        try:
            ray.get(life)
        except Exception:
            with self._lock:
                self._why = self._end_words
                listeners = [] if self._is_ended else self._listeners
            for listener in listeners:
                listener(self._why)

    def why_lost(self) -> str | None:
        return self._why

    def watch(self, tell: Callable[[str], None]) -> None:
        with self._lock:
            self._listeners.append(tell)
            why = None if self._is_ended else self._why
        if why is not None:
            tell(why)

    def end(self) -> None:
        import ray

        self._is_ended = True
        with contextlib.suppress(Exception):  # the actor or Ray may have ended
            ray.kill(self._actor, no_restart=True)
