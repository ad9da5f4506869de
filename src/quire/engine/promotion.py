"""Promote a model that arrives while it serves from stage to stage, always between two steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from quire.core.block_keys import Namespace
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.load_or_compute import PIN_LIMIT_S
from quire.core.scheduler import Scheduler

logger = logging.getLogger("quire")


class StepThrottle(Protocol):
    """The engine's side of a `system.background_throttle.BackgroundThrottle`."""

    def begin_step(self) -> None: ...

    def end_step(self, *, goes_on: bool) -> None: ...

    def pause(self) -> None: ...


class Arrivals(Protocol):
    """Loads a model's stages in a thread of its own (`loading.layer_loader.LayerLoader`)."""

    num_stages: int
    last_stage: int  #: to load
    on_stage: Callable[[int], None] | None  #: called in the loader's thread when a stage has arrived

    @property
    def throttle(self) -> StepThrottle:
        """Makes loading wait for pauses between steps."""
        ...

    @property
    def stage_ready(self) -> int:
        """The last stage that has arrived whole."""
        ...

    def stage(self, number: int) -> Any:
        """Return a stage for the runner."""
        ...

    def set_served_stage(self, number: int) -> None:
        """Report that a stage serves."""
        ...


class Promoter:
    """Promotes one engine from stage `first` on; calls `on_promotion` with each new stage. `namespaces` are those of KV
    from stage 1 on, `shares` the stages' shares of the full model's layers."""

    def __init__(
        self,
        arrivals: Arrivals,
        runner: Any,
        namespaces: Sequence[Namespace],
        shares: Sequence[float],
        first: Any,
    ) -> None:
        self.arrivals = arrivals
        self._runner = runner
        self._first: Any = first
        self.roots = [namespace.root() for namespace in namespaces]
        self._shares = shares
        self._pinned_until = 0.0  #: `time.monotonic`
        self.on_promotion: list[Callable[[int], None]] = []

    @property
    def num_stages(self) -> int:
        return self.arrivals.num_stages

    @property
    def last_stage(self) -> int:
        return self.arrivals.last_stage

    def start(self, scheduler: Scheduler, cost_model: CostModel) -> None:
        """Begin with the first stage, before any request."""
        first, self._first = self._first, None  # the runner alone holds stages: dropped ones are freed
        scheduler.stages.start(first.number, self.roots[first.number - 1])
        cost_model.enter_stage(first.number, self._shares[first.number - 1])
        self._runner.add_stage(first)
        self.arrivals.set_served_stage(first.number)

    def advance(self, scheduler: Scheduler, cost_model: CostModel) -> None:
        """Promote to the last stage that has arrived, unless requests are pinned to an older one, and drop retired
        ones."""
        stages = scheduler.stages
        if stages.older is not None and time.monotonic() > self._pinned_until:
            scheduler.restart_pinned()
        self._drop_retired(scheduler)
        number = self.arrivals.stage_ready
        if stages.older is None and number > stages.current:
            self._promote(scheduler, cost_model, number)

    def _promote(self, scheduler: Scheduler, cost_model: CostModel, number: int) -> None:
        started, before = time.monotonic(), scheduler.stages.current
        self._runner.add_stage(self.arrivals.stage(number))
        num_running = len(scheduler.queue.running)
        scheduler.promote(number, self.roots[number - 1])
        cost_model.enter_stage(number, self._shares[number - 1])
        self._pinned_until = started + PIN_LIMIT_S
        self._drop_retired(scheduler)
        self.arrivals.set_served_stage(number)
        num_pinned = sum(request.stage == before for request in scheduler.queue.running)
        if num_running:
            logger.info(
                "promoted to stage %d: of %d running requests, %d finish on stage %d, the others are recomputed",
                number, num_running, num_pinned, before,
            )  # fmt: skip
        for listener in self.on_promotion:
            listener(number)

    def _drop_retired(self, scheduler: Scheduler) -> None:
        for number in scheduler.stages.pop_retired():
            self._runner.drop_stage(number)
