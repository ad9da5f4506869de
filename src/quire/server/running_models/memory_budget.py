"""`MemoryBudget`: more models than fit into memory. A load first unloads the least recently used idle models.

If too few are idle, further requests of the others wait, those of the longest loaded model first, until its running
requests have ended. No request is cut off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.system.memory import used_by

_POLL_S = 0.05
_QUIET_S = 1.0  # of an idle model: a request may be on its way to the engine
_PATIENCE_S = 2.0  # until requests of busy models wait


@dataclass(eq=False)
class _Member:
    engine: AsyncEngine
    load: Callable[[], None]
    planned: int  #: bytes
    loaded_at: float | None  #: start of the last load (`time.monotonic`); None before, and while it waits for memory

    @property
    def num_bytes(self) -> int:
        """Bytes that its process takes, or will take; 0 without one."""
        engine, pid = self.engine, self.engine.pid
        is_loaded = self.loaded_at is not None and engine.state is not ModelState.UNLOADED and not engine.is_given_up
        used = used_by(pid) if pid is not None else None
        return max(self.planned, used[0] if used is not None else 0) if is_loaded or pid is not None else 0

    @property
    def has_served(self) -> bool:
        """Whether a request has ended since the last load: else two models could displace each other for ever."""
        return self.engine.state is ModelState.READY and self.engine.last_end > (self.loaded_at or 0)


class MemoryBudget:
    """Loads the models of one event loop within `limit` bytes, in the order in which they are asked for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: dict[AsyncEngine, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def add(self, engine: AsyncEngine, load: Callable[[], None], num_bytes: int, *, is_loading: bool) -> None:
        """Add a model of `num_bytes`, or change their number from its next load on. `load` starts its process."""
        self._members = {each: known for each, known in self._members.items() if each.state is not ModelState.DRAINING}
        self._members[engine] = _Member(engine, load, num_bytes, time.monotonic() if is_loading else None)

    def load(self, name: str) -> None:
        """Load a model once there is room. Called in the event loop; returns at once."""
        member = next(each for each in reversed(self._members.values()) if each.engine.name == name)
        member.loaded_at = None
        task = asyncio.get_running_loop().create_task(self._load(member))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, member: _Member) -> None:
        async with self._turn:
            if await self._make_room(member):
                member.loaded_at = time.monotonic()
                member.load()

    async def _make_room(self, member: _Member) -> bool:
        """Wait until a model fits. Returns False if all its requests have left meanwhile."""
        held: list[_Member] = []
        patient_until = time.monotonic() + _PATIENCE_S
        try:
            while (short := member.planned + sum(each.num_bytes for each in self._members.values()) - self._limit) > 0:
                if not member.engine.num_requests:
                    member.engine.gate.set_state(ModelState.UNLOADED, None)
                    return False
                self._unload_others(short, held, may_hold=time.monotonic() > patient_until)
                await asyncio.sleep(_POLL_S)
        finally:
            for each in held:
                each.engine.gate.release()
        return True

    def _unload_others(self, short: int, held: list[_Member], *, may_hold: bool) -> None:
        """Unload idle models until the missing bytes are free, and let requests of others wait, which join `held`."""
        members = list(self._members.values())
        is_going = [each in held or each.engine.state is ModelState.UNLOADED for each in members]
        short -= sum(each.num_bytes for each, goes in zip(members, is_going, strict=True) if goes)
        for each in sorted(members, key=lambda each: max(each.engine.last_end, each.loaded_at or 0)):
            engine, num_bytes = each.engine, each.num_bytes
            is_busy = engine.state is not ModelState.READY or engine.num_requests > len(engine.gate)
            if is_busy or (short <= 0 and each not in held):
                continue
            if engine.idle_s < _QUIET_S:
                break  # soon
            if engine.unload():
                short -= 0 if each in held else num_bytes
        for each in sorted(members, key=lambda each: each.loaded_at or 0):
            if short > 0 and may_hold and each.has_served and each not in held:
                each.engine.gate.hold()
                held.append(each)
                short -= each.num_bytes
