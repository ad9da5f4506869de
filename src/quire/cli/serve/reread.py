"""SIGHUP: read the configuration file again, and add, remove and reload models."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quire.cli.serve.engines import EngineMaker, PreparedEngines, prepare
from quire.config import EngineConfig
from quire.server.settings import ServerSettings
from quire.settings import option_name, setting_fields

if TYPE_CHECKING:
    from quire.server.registry import ServedModel
    from quire.server.running_models.model_set import ModelSet

logger = logging.getLogger("quire.server")


@dataclass
class Reread:
    """Called in the event loop at each SIGHUP. A file with an error changes nothing. Options of the server need a
    restart, and are logged."""

    read: Callable[[], dict[str, Any]]  #: reads the file; returns the parameters of `quire serve`
    engines: dict[str, EngineConfig]  #: of the file as it was read last, by served name
    settings: ServerSettings  #: of the file as it was read at the start
    maker: EngineMaker
    models: ModelSet
    template: str | None  #: chat template in place of the models' own
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __call__(self) -> None:
        self.models.begin(self._apply())

    async def _apply(self) -> None:
        from quire.async_engine.messages import EngineUnavailable, ModelState

        async with self.turn:
            try:
                prepared = await asyncio.to_thread(self._check)
                changed = self._replace(prepared)
            except Exception as error:
                logger.error("the configuration is not changed: %s", " ".join(str(error).split()))
                return
            for model in changed:  # one after the other, so that the others serve
                engine, change = model.async_engine, partial(self.maker.change, model.async_engine, prepared)
                if engine.state is ModelState.UNLOADED:
                    change()
                    continue
                await self.models.reload(model, change)
                with suppress(EngineUnavailable):  # logged
                    await engine.wait_ready()

    def _check(self) -> PreparedEngines:
        """Read and check the file. Raises ValueError."""
        from quire.routing import RoutingConfig

        if not self.settings.engine_process:
            raise ValueError("with no_engine_process, models change at a restart only")
        made = self.read()
        # The server keeps its settings, by which the models are prepared.
        prepared = prepare(made["engines"], self.settings)
        if self.settings.routing is not None:
            routed = set(RoutingConfig.from_file(self.settings.routing.expanduser()).models.values())
            if missing := sorted(routed - prepared.given.keys()):
                raise ValueError(f"the routing names {', '.join(missing)}, which would not be served any more")
        names = [
            option_name(each).replace("_", "-")
            for each in setting_fields(ServerSettings)
            if getattr(self.settings, each.name) != getattr(made["settings"], each.name)
        ]
        if names:
            logger.warning("only a restart changes %s", ", ".join(names))
        return prepared

    def _adapters_of(self, models: list[ServedModel], prepared: PreparedEngines) -> list[ServedModel]:
        """Return the models' adapters: those of the file, and those that were loaded since the start."""
        found = [model.with_adapter(*pair) for model in models for pair in prepared.adapters[model.name].items()]
        kept = {model.async_engine for model in models}
        loaded = self.models.registry.adapters.values()
        return found + [
            each for each in loaded if each.async_engine in kept and each.name in each.async_engine.adapters.loaded
        ]

    def _replace(self, prepared: PreparedEngines) -> list[ServedModel]:
        """Add and remove models. Returns those to reload."""
        from quire.server.registry import ServedModel

        before = {model.name: model for model in self.models.registry}
        models, added, changed = [], [], []
        for name, config in prepared.given.items():
            if (known := before.pop(name, None)) is not None:
                models.append(replace(known, source=config.model))
                changed += models[-1:] if config != self.engines[name] else []
                continue
            engine = self.maker.make(name, prepared)
            models.append(ServedModel(name, engine, int(time.time()), self.template, config.model, prepared.aliases))
            added.append(name)
        self.models.replace([*models, *self._adapters_of(models, prepared)])
        self.engines = prepared.given
        for model in models:
            if model.name in added:
                model.async_engine.start(asyncio.get_running_loop())
        logger.info(
            "the configuration was read again: added %s; removed %s; to be reloaded %s",
            *(", ".join(names) or "none" for names in (added, before, [model.name for model in changed])),
        )
        return changed
