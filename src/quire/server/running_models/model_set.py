"""`ModelSet`: unloads, reloads, adds and removes models. Requests in flight finish; later ones wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.server.registry import ModelRegistry, ServedModel

_POLL_S = 0.02
_QUIET_S = 1.0  # of a removed model before it ends: a request may be on its way to the engine


class ModelSet:
    """The models of a registry, for changes in its event loop. Changes of one model follow each other."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry
        self._locks: WeakKeyDictionary[AsyncEngine, asyncio.Lock] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a change to its end, whether or not its caller waits."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def unload(self, model: ServedModel, change: Callable[[], None] = lambda: None) -> None:
        """Unload a model once its requests have ended, and call `change`. Requests wait meanwhile; the next one loads
        the model again."""
        engine = model.async_engine
        async with self._locks.setdefault(engine, asyncio.Lock()):
            engine.gate.hold()
            try:
                while engine.state in (ModelState.LOADING, ModelState.READY) and not engine.unload():
                    await asyncio.sleep(_POLL_S)
                while engine.state is ModelState.UNLOADED and engine.pid is not None:
                    await asyncio.sleep(_POLL_S)
                change()
            finally:
                engine.gate.release()

    async def reload(self, model: ServedModel, change: Callable[[], None] = lambda: None) -> None:
        """Unload a model, call `change`, and begin to load it."""
        await self.unload(model, change)
        # What is known of the old tokenizer goes with the old object.
        served = (*self.registry, *self.registry.adapters.values())
        self.registry.replace([replace(each) if each.async_engine is model.async_engine else each for each in served])
        model.async_engine.gate.load()

    def replace(self, models: Sequence[ServedModel]) -> None:
        """Serve these models, and end the others after their requests. ValueError as `ModelRegistry.replace`."""
        before = list(self.registry)
        self.registry.replace(models)
        kept = {model.async_engine for model in models}
        for model in before:
            if model.async_engine not in kept:
                self.registry.leaving.append(model)
                self.begin(self._end(model))

    async def _end(self, model: ServedModel) -> None:
        engine = model.async_engine
        while engine.num_requests or (engine.state is ModelState.READY and engine.idle_s < _QUIET_S):
            await asyncio.sleep(_POLL_S)
        await asyncio.to_thread(engine.shutdown)
        self.registry.leaving.remove(model)
