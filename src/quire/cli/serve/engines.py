"""Engines of `quire serve`: checks and completes their options, and makes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quire.cli.serve.kept_prompts import keep_prompts
from quire.config import EngineConfig
from quire.server.settings import ServerSettings

if TYPE_CHECKING:
    from quire.async_engine.async_engine import AsyncEngine
    from quire.async_engine.process import ProcessHost
    from quire.engine.engine import Engine
    from quire.outputs import LoadProgress
    from quire.server.load_bar import LoadBar
    from quire.server.metrics import Metrics
    from quire.server.running_models.memory_budget import MemoryBudget
    from quire.system.child_process import ChildProcess

logger = logging.getLogger("quire")


@dataclass(frozen=True)
class PreparedEngines:
    """Options by served name, and the aliases of the only model."""

    given: dict[str, EngineConfig]
    configs: dict[str, EngineConfig]
    aliases: tuple[str, ...]
    num_bytes: Mapping[str, int]  #: memory by served name; empty without a limit
    first: tuple[str, ...]  #: models to load at the start

    @property
    def adapters(self) -> dict[str, dict[str, str]]:
        """Directories of each model's adapters."""
        return {name: config.adapters for name, config in self.given.items()}


def prepare(engines: dict[str, EngineConfig], settings: ServerSettings) -> PreparedEngines:
    """Check models before anything is loaded, and complete their options. ValueError for one that cannot be served."""
    from quire.loading.hub import NotDownloadedError
    from quire.loading.source import resolve_model

    given, aliases = settings.named(engines)
    engines = dict(given)
    names = [name for config in engines.values() for name in config.adapters]
    if len(set(names)) < len(names):
        raise ValueError("lora goes to every model; of several ones, list the adapters under their models in --config")
    for config in engines.values():
        with suppress(NotDownloadedError):  # its engine downloads it, and then knows its architecture
            source = resolve_model(config.model, hub=config.hub, with_weights=False)
            source.check_architecture()
            if (size := config.tensor_parallel_size) > 1:
                from quire.models.parallel import ModelSplit, ParallelGroup

                ModelSplit(source.config, ParallelGroup(0, size))  # refuses a model that cannot be split
    if not settings.engine_process and len(engines) > 1 and any(config.load_overlap for config in engines.values()):
        raise ValueError("load_overlap would delay the other models on the shared device; use engine processes")
    engines = keep_prompts(engines) if settings.keep_kv else engines
    if settings.engine_process and len(engines) > 1:
        engines = share_threads(engines)
    if (limit := settings.memory_limit) is None:
        return PreparedEngines(given, engines, aliases, {}, tuple(engines))
    from quire.cli.serve.memory_need import fit_memory

    num_bytes: dict[str, int] = {}
    for name, config in engines.items():
        engines[name], num_bytes[name] = fit_memory(name, config, limit, share=1 / len(engines))
    first, left = [], limit
    for name, need in num_bytes.items():
        if need <= left:
            first.append(name)
            left -= need
    return PreparedEngines(given, engines, aliases, num_bytes, tuple(first))


def share_threads(engines: dict[str, EngineConfig]) -> dict[str, EngineConfig]:
    """Divide the cores: threads wait by spinning, and two engines with all cores each take ten times as long."""
    from quire.system.threads import default_num_threads

    share = max(1, default_num_threads(spans_nodes=True) // len(engines))
    logger.info("%d models share the cores; each has --num-threads %d", len(engines), share)
    return {
        name: config if config.num_threads is not None else replace(config, num_threads=share)
        for name, config in engines.items()
    }


def engine_maker(config: EngineConfig, num_engines: int) -> Callable[[], Engine]:
    from quire.startup import start_engine

    config = replace(config, use_tqdm=False)  # the server's bar shows all models
    return partial(start_engine, config, memory_share=1 / num_engines)


class EngineMaker:
    """Makes each model's engine, in a process or in a thread of this process, and changes its options."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, bar: LoadBar | None) -> None:
        from quire.system.fair_lock import FairLock

        self._settings, self._metrics, self._bar = settings, metrics, bar
        self._device = FairLock()
        self._hosts: dict[str, ProcessHost] = {}
        self._budget: MemoryBudget | None = None
        if settings.memory_limit is not None:
            from quire.server.running_models.memory_budget import MemoryBudget

            self._budget = MemoryBudget(settings.memory_limit)

    def make(self, name: str, prepared: PreparedEngines, child: ChildProcess | None = None) -> AsyncEngine:
        """Make an engine, which `child` runs already, if given. Under a memory limit another one starts on demand."""
        from quire.async_engine.async_engine import AsyncEngine
        from quire.async_engine.host import ThreadHost
        from quire.async_engine.process import ProcessHost

        settings, timeout = self._settings, self._settings.hang_timeout_s
        make_engine = engine_maker(prepared.configs[name], len(prepared.configs))
        options: dict[str, Any] = {"max_queue": settings.max_queue, "load_wait_s": settings.load_wait_s}
        callbacks = {**self._metrics.callbacks(name), "on_load": partial(self._report_load, name)}
        callbacks["on_stats"] = partial(self._metrics.observe_stats, name)
        if not settings.engine_process:
            device = self._device if len(prepared.configs) > 1 else None
            thread = ThreadHost(name, make_engine, device=device, hang_timeout_s=timeout, exit_on_hang=True)
            return AsyncEngine(thread, **options, **callbacks)
        waits = self._budget is not None and child is None
        on_wake = None if self._budget is None else partial(self._budget.load, name)
        host = ProcessHost(name, make_engine, hang_timeout_s=timeout, child=child, waits=waits, on_wake=on_wake)
        engine, self._hosts[name] = AsyncEngine(host, **options, **callbacks), host
        if self._budget is not None:
            self._budget.add(engine, host.load, prepared.num_bytes[name], is_loading=not waits)
        return engine

    def change(self, engine: AsyncEngine, prepared: PreparedEngines) -> None:
        """Give an engine other options from its next load on; call it while the engine is unloaded."""
        name, host = engine.name, self._hosts[engine.name]
        host.make_engine = engine_maker(prepared.configs[name], len(prepared.configs))
        if self._budget is not None:
            self._budget.add(engine, host.load, prepared.num_bytes[name], is_loading=False)

    def _report_load(self, name: str, progress: LoadProgress) -> None:
        self._metrics.observe_load(name, progress)
        if self._bar is not None:
            self._bar.show(name, progress)
