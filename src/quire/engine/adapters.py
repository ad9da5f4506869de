"""LoRA adapters that requests name (`Prompt.adapter`), on one engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.core.request import RequestAdapter
from quire.core.scheduler import Scheduler
from quire.engine.promotion import Promoter

logger = logging.getLogger("quire")

MAX_ADAPTERS = 64  #: at once, on one engine


class EngineAdapters:
    """Loads and unloads adapters between steps. Requests that run keep theirs until they end."""

    def __init__(self, scheduler: Scheduler, runner: Any, promoter: Promoter | None) -> None:
        self._scheduler, self._promoter = scheduler, promoter
        self._runner = runner  #: a `ModelRunner`, or that of all ranks
        self._loaded: dict[str, RequestAdapter] = {}
        self._unloaded: list[int] = []  #: numbers that requests may still have
        self._num_loads = 0

    def load(self, name: str, directory: str) -> None:
        """Read an adapter, which replaces one of that name for later requests. Running requests wait as long.
        ValueError, before anything changes, if it is missing, broken, or of another kind or model."""
        if self._promoter is not None and self._promoter.last_stage < self._promoter.num_stages:
            raise ValueError("adapters belong to the whole model; leave out last_stage")
        self.sweep()
        if len(self._loaded) + len(self._unloaded) >= MAX_ADAPTERS:
            raise ValueError(f"{MAX_ADAPTERS} adapters are loaded, which is the limit; unload one")
        path = Path(directory).expanduser()
        for file in ("adapter_config.json", "adapter_model.safetensors"):
            if not (path / file).is_file():
                raise ValueError(f"{path} is no LoRA adapter in PEFT's format: it has no file {file}")
        self._num_loads += 1
        adapter = RequestAdapter(name, self._num_loads, self._runner.load_adapter(self._num_loads, str(path)))
        self.unload(name)
        self._loaded[name] = adapter
        logger.info("adapter %s: loaded from %s", name, path)

    def unload(self, name: str) -> None:
        """Take no more requests for an adapter, and free it when the last one has ended. Harmless without it."""
        if (adapter := self._loaded.pop(name, None)) is not None:
            self._unloaded.append(adapter.number)
            self.sweep()

    def sweep(self) -> None:
        """Free the unloaded adapters that no request has any more."""
        if not self._unloaded:
            return
        requests = self._scheduler.queue.requests.values()
        in_use = {request.adapter.number for request in requests if request.adapter is not None}
        for number in self._unloaded:
            if number not in in_use:
                self._runner.drop_adapter(number)
        self._unloaded = [number for number in self._unloaded if number in in_use]

    def find(self, name: str) -> RequestAdapter | None:
        """Return the adapter of a prompt; None for none. ValueError if it is not loaded."""
        if name and name not in self._loaded:
            raise ValueError(f"the adapter {name!r:.200} is not loaded")
        return self._loaded[name] if name else None

    def root_of(self, name: str) -> bytes:
        """Return the namespace key of new KV with an adapter. Raises like `find`."""
        return self._scheduler.stages.root_of(self.find(name))

    def __iter__(self) -> Iterator[RequestAdapter]:
        return iter(self._loaded.values())
