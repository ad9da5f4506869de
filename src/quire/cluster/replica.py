"""One replica of a model: a Ray Serve actor with an engine in a child process, started again after a hang or a
crash."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quire import __version__
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.event_stream import EventStream
from quire.async_engine.host import EngineHost
from quire.async_engine.messages import EngineUnavailable, Finished, ModelState, RequestFailed, Started
from quire.async_engine.process import ProcessHost
from quire.async_engine.spawn import engine_child, run_engine
from quire.cluster import actor_ranks
from quire.cluster.metrics import metric_values
from quire.cluster.share import ReplicaShare
from quire.cluster.wire import ReplicaNews, check_version, pack_events, unpack_request
from quire.config import EngineConfig
from quire.engine.input_processor import InputProcessor
from quire.prompt import Prompt
from quire.server.metrics import Metrics
from quire.startup import start_engine

if TYPE_CHECKING:
    from quire.engine.engine import Engine

_TYPICAL_PROMPT = 512  # tokens of the prompt whose TTFT is predicted for autoscaling


class ModelReplica:
    """A Ray Serve replica. Requests wait up to `load_wait_s` for a lost engine's restart."""

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        *,
        share: ReplicaShare,
        hang_timeout_s: float,
        load_wait_s: float,
        version: str = __version__,
    ) -> None:
        check_version(version)
        num_cpus = share.cpus_a_machine
        if config.num_threads is None:
            config = replace(config, num_threads=max(1, int(num_cpus)))
        config = replace(config, use_tqdm=False)  # there is no terminal
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
        child = run_engine(engine_child(), name, make_engine, hang_timeout_s=hang_timeout_s)
        return ProcessHost(name, make_engine, hang_timeout_s=hang_timeout_s, child=child)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def generate(self, data: bytes) -> AsyncIterator[bytes]:
        """Yield one request's events, an error last, in larger frames for a slow reader; a disconnect ends it."""
        add = unpack_request(data)
        stream = EventStream()
        try:
            await self._engine.forward(stream, add)
            is_over = False
            while not is_over:
                events = [event for _, event in await stream.read()]
                is_over = isinstance(events[-1], Finished)
                has_begun = any(isinstance(event, Started) for event in events)
                yield pack_events(add.key, events, self._engine.forecast if has_begun else None)
        except (ValueError, EngineUnavailable, RequestFailed) as error:
            yield pack_events(add.key, [error])
        finally:
            self._engine.leave(stream)

    async def facts(self, data: bytes = b"") -> InputProcessor | EngineUnavailable:
        """Wait for the model's facts for validating requests; return an error, since Serve logs raised tracebacks."""
        try:
            await self._engine.wait_ready()
            return await self._engine.wait_open()
        except EngineUnavailable as error:
            return error

    async def delete_documents(self, prompts: Sequence[tuple[Prompt, int]]) -> None:
        """Delete the KV of documents (`AsyncEngine.delete_documents`)."""
        self._engine.delete_documents(prompts)

    # -- hooks of Ray Serve --------------------------------------------------------------------------------------------

    def check_health(self) -> None:
        """Raise an error if the model failed to load, so that Serve replaces this replica."""
        if self._engine.state is ModelState.FAILED:
            raise RuntimeError(f"{self._engine.name} cannot be served: {self._engine.error}")

    def record_routing_stats(self) -> dict[str, Any]:
        """Return the report for routing and the application's metrics."""
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
            metrics=metric_values(self._metrics),
        ).as_stats()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the values for `scaling.FollowLoad`."""
        forecast = self._engine.forecast
        return {
            "serving": float(self._engine.state is ModelState.READY),
            "ttft_s": forecast.predict(_TYPICAL_PROMPT).ttft_s if forecast is not None else 0.0,
        }

    def __del__(self) -> None:
        """Stop the engine after draining."""
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.shutdown()
