"""One replica of a model: an actor of Ray Serve that keeps an engine, in a process of its own, and serves its requests.

The engine's process is the same as behind `quire serve`: a step that hangs or crashes ends it alone, and the replica
starts it again. Requests come with their prompts encoded, from the application (`remote_engine.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.event_stream import EventStream
from quire.async_engine.host import EngineHost
from quire.async_engine.messages import EngineUnavailable, Finished, ModelState, RequestFailed, Started
from quire.async_engine.process import ProcessHost
from quire.cluster import actor_ranks
from quire.cluster.figures import figures_of
from quire.cluster.share import ReplicaShare
from quire.cluster.wire import ReplicaNews, pack_events, unpack_request
from quire.config import EngineConfig
from quire.engine.input_processor import InputProcessor
from quire.prompt import Prompt
from quire.server.metrics.metrics import Metrics
from quire.startup import start_engine
from quire.system.child_process import ChildProcess

if TYPE_CHECKING:
    from quire.engine.engine import Engine

_TYPICAL_PROMPT = 512  # tokens, of which the first token is predicted for autoscaling


class ModelReplica:
    """Args:
    name: of the model.
    config: of its engine.
    share: that it has of the cluster.
    hang_timeout_s: for a step of the engine.
    load_wait_s: for which requests wait for an engine that was lost.
    """

    def __init__(
        self, name: str, config: EngineConfig, *, share: ReplicaShare, hang_timeout_s: float, load_wait_s: float
    ) -> None:
        num_cpus = share.cpus_a_machine
        if config.num_threads is None:
            config = replace(config, num_threads=max(1, int(num_cpus)))
        config = replace(config, use_tqdm=False)  # nobody watches a terminal here
        if share.num_machines > 1:
            start = partial(actor_ranks.start_engine, config, actor_ranks.MachineGroup.of_this_actor(share))
        else:
            start = partial(start_engine, config)
        self._numbers = itertools.count()
        self._metrics = Metrics((name,))
        make_engine = partial(start, memory_share=min(1.0, num_cpus / (os.cpu_count() or 1)))
        self._engine = AsyncEngine(
            self._make_host(name, make_engine, hang_timeout_s),
            load_wait_s=load_wait_s,
            on_stats=partial(self._metrics.observe_stats, name),
        )
        self._engine.start(asyncio.get_running_loop())

    def _make_host(self, name: str, make_engine: Callable[[], Engine], hang_timeout_s: float) -> EngineHost:
        child = ChildProcess("engine", imports="quire.assembly")
        return ProcessHost(name, make_engine, hang_timeout_s=hang_timeout_s, child=child)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def generate(self, data: bytes) -> AsyncIterator[bytes]:
        """The events of one request as they come (`wire.pack_events`), its error last, if it ends with one. A reader
        that is slower than the engine gets fewer and larger frames; one that goes away ends the request."""
        add = unpack_request(data)
        stream = EventStream()
        try:
            await self._engine.forward(stream, add)
            is_over = False
            while not is_over:
                events = [event for _, event in await stream.take()]
                is_over = isinstance(events[-1], Finished)
                has_begun = any(isinstance(event, Started) for event in events)
                yield pack_events(add.key, events, self._engine.forecast if has_begun else None)
        except (ValueError, EngineUnavailable, RequestFailed) as error:
            yield pack_events(add.key, [error])
        finally:
            self._engine.leave(stream)

    async def facts(self, data: bytes = b"") -> InputProcessor | EngineUnavailable:
        """What requests of this model are judged by, once that is known; or why it never will be. Not raised, since
        Serve writes a stack of each exception to its log."""
        try:
            await self._engine.wait_ready()
            return await self._engine.wait_open()
        except EngineUnavailable as error:
            return error

    async def forget(self, prompts: Sequence[tuple[Prompt, int]]) -> None:
        """Delete the KV of documents (`AsyncEngine.forget`)."""
        self._engine.forget(prompts)

    # -- what Ray Serve asks -------------------------------------------------------------------------------------------

    def check_health(self) -> None:
        """Raises where the model cannot be served, and another replica is to take this one's place. An engine that was
        lost is started again here."""
        if self._engine.state is ModelState.FAILED:
            raise RuntimeError(f"{self._engine.name} cannot be served: {self._engine.error}")

    def record_routing_stats(self) -> dict[str, Any]:
        """For those who choose a replica, and for the application's metrics."""
        engine = self._engine
        progress = engine.load_progress
        is_ready = engine.state is ModelState.READY
        limits = engine.limits if is_ready else None
        return ReplicaNews(
            next(self._numbers),
            stage=max(1, progress.stage) if is_ready and progress is not None else 0,
            forecast=engine.forecast,
            progress=progress,
            num_blocks=limits.num_blocks if limits is not None else 0,
            block_size=limits.block_size if limits is not None else 1,
            figures=figures_of(self._metrics),
        ).as_stats()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """For whoever decides how many replicas there are."""
        forecast = self._engine.forecast
        return {
            "serving": float(self._engine.state is ModelState.READY),
            "ttft_s": forecast.predict(_TYPICAL_PROMPT).ttft_s if forecast is not None else 0.0,
        }

    def __del__(self) -> None:
        """The replica has drained, and ends."""
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.shutdown()
