"""LoRA adapters that are loaded and unloaded while a model is served."""

from __future__ import annotations

from collections.abc import Callable

from quire.async_engine.host import EngineHost, Replies
from quire.async_engine.messages import Command, EngineUnavailable, SetAdapter

_TIMEOUT_S = 600.0  # of a slow disk


class AdapterChanges:
    """Changes of a model's adapters since its start, which each new engine repeats. `ask` sends a command if an engine
    runs."""

    def __init__(self, host: EngineHost, replies: Replies, ask: Callable[[Command], bool]) -> None:
        self._host, self._replies, self._ask = host, replies, ask
        self._changes: dict[str, SetAdapter] = {}  #: the last one of each name

    @property
    def loaded(self) -> set[str]:
        """The names of adapters that were loaded since the start."""
        return {name for name, change in self._changes.items() if change.directory is not None}

    async def load(self, name: str, directory: str) -> None:
        """Load an adapter, in place of one of that name, for requests that are sent later. ValueError if it cannot be
        loaded; EngineUnavailable if no engine runs, or it is lost meanwhile."""
        if not self._host.sets_adapters:
            raise ValueError("adapters do not work with ray")
        error = await self._set(name, directory)
        if error is None:
            raise EngineUnavailable(f"{self._host.name} was lost, or did not answer; try again")
        if error:
            raise ValueError(error)
        self._changes[name] = SetAdapter(-1, name, directory)

    async def unload(self, name: str) -> None:
        """Have later requests for an adapter fail."""
        self._changes[name] = SetAdapter(-1, name, None)
        await self._set(name, None)

    async def _set(self, name: str, directory: str | None) -> str | None:
        return await self._replies.ask(lambda number: SetAdapter(number, name, directory), self._ask, _TIMEOUT_S)

    def repeat(self) -> None:
        """Send the changes to a new engine, before any request."""
        for change in self._changes.values():
            self._host.send(change)
