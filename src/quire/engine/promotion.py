"""From stage to stage of a model that arrives while it serves, always between two steps.

The loader says which stage is there. The runner gets its layers and its adapter, the scheduler decides what becomes of
requests in flight, and costs are learnt anew, since fewer layers take less time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from quire.core.block_keys import Namespace
from quire.core.stages import PIN_LIMIT_S

if TYPE_CHECKING:
    from quire.engine.engine import Engine

logger = logging.getLogger("quire")


class Turns(Protocol):
    """Whose turn it is, this engine's or that of work in the background (`system.turns.Turns`)."""

    def begin_step(self) -> None: ...

    def end_step(self, *, goes_on: bool) -> None: ...

    def pause(self) -> None: ...


class Arrivals(Protocol):
    """Who brings a model's stages, in a thread of its own (`loading.loader.LayerLoader`)."""

    num_stages: int
    last_stage: int  #: that is loaded
    on_stage: Callable[[int], None] | None  #: called, in its thread, when a stage has arrived

    @property
    def turns(self) -> Turns:
        """Between steps, for work that would slow them down."""
        ...

    @property
    def stage_ready(self) -> int:
        """The last stage that is there whole."""
        ...

    def stage(self, number: int) -> Any:
        """A stage as the runner takes it."""
        ...

    def set_served_stage(self, number: int) -> None:
        """Tell those who watch the loading that a stage serves."""
        ...


class StageRunner(Protocol):
    """What promotion asks of the runner."""

    def add_stage(self, stage: Any) -> None: ...

    def drop_stage(self, number: int) -> None: ...


class Promoter:
    """Args:
    arrivals: brings the stages.
    runner: of the engine.
    namespaces: of their KV, from stage 1 on.
    shares: of the full model's layers, that each stage has.
    first: the stage that the engine begins with, be it that its layers still arrive.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        runner: StageRunner,
        namespaces: Sequence[Namespace],
        shares: Sequence[float],
        first: Any,
    ) -> None:
        self.arrivals = arrivals
        self._runner = runner
        self._first: Any = first
        self.roots = [namespace.root() for namespace in namespaces]
        self._shares = shares
        self._older: int | None = None  #: that the runner keeps
        self._older_until = 0.0  #: `time.monotonic`
        self.on_promotion: list[Callable[[int], None]] = []

    @property
    def num_stages(self) -> int:
        return self.arrivals.num_stages

    @property
    def last_stage(self) -> int:
        """The last one that will serve: the original, unless somebody wants no more than an earlier one."""
        return self.arrivals.last_stage

    def begin(self, engine: Engine) -> None:
        """The engine is made, and nothing has been computed."""
        first, self._first = self._first, None  # the runner alone holds stages: what is left is freed
        number = first.number
        engine.root = self.roots[number - 1]
        engine.scheduler.stages.current = number
        engine.cost_model.enter_stage(number, self._shares[number - 1])
        self._runner.add_stage(first)
        self.arrivals.set_served_stage(number)

    def take(self, engine: Engine) -> bool:
        """Between two steps: go to the last stage that has arrived, and let go of one that nobody needs any more.

        As long as requests are pinned to an older stage, the next promotion waits: they were pinned because finishing
        costs less than computing them again.

        Returns:
            Whether the engine is at another stage.
        """
        stages = engine.scheduler.stages
        if self._older is not None:
            if time.monotonic() > self._older_until:
                engine.scheduler.leave_older_stage()
            if engine.scheduler.has_older_stage():
                return False
            self._runner.drop_stage(self._older)
            self._older = None
        number = self.arrivals.stage_ready
        if number <= stages.current:
            return False
        self._promote(engine, number)
        return True

    def _promote(self, engine: Engine, number: int) -> None:
        started, before = time.monotonic(), engine.scheduler.stages.current
        self._runner.add_stage(self.arrivals.stage(number))
        num_running = len(engine.scheduler.running)
        engine.root = self.roots[number - 1]
        engine.scheduler.promote(number, engine.root)
        engine.cost_model.enter_stage(number, self._shares[number - 1])
        if engine.scheduler.stages.older is not None:
            self._older, self._older_until = before, started + PIN_LIMIT_S
        else:
            self._runner.drop_stage(before)
        self.arrivals.set_served_stage(number)
        num_pinned = sum(request.stage == before for request in engine.scheduler.running)
        if num_running:
            logger.info(
                "at stage %d: of %d running requests, %d finish on stage %d, and the others are computed again",
                number, num_running, num_pinned, before,
            )  # fmt: skip
        for listener in self.on_promotion:
            listener(number)
