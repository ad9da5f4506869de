"""Interfaces of a rank, and of the handle through which the first rank drives another: a process or an actor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from quire.outputs import BlockDifference, SchedulerOutput, StepOutput, StoreChanges

GRACE_S = 10.0  #: time for all ranks to end a step that failed on one of them


class RankWorker(Protocol):
    """One rank of a model. Arguments and results survive pickling. All ranks get the same steps in the same order, and
    a step ends on no rank before all have reached it."""

    def execute(self, out: SchedulerOutput) -> StepOutput:
        """See `Runner.execute`. Only the first rank draws tokens; the others get them with the next step."""
        ...

    def poll_store(self) -> StoreChanges | None:
        """See `Runner.poll_store`, for this rank's slices."""
        ...

    def compare_blocks(self, pairs: Sequence[tuple[int, int, bool]]) -> list[BlockDifference | None]:
        """See `ModelRunner.compare_blocks`, for this rank's slices."""
        ...

    def forget(self, keys: set[bytes]) -> int:
        """Delete blocks from disk; see `BlockStore.delete`."""
        ...

    def add_stage(self, number: int) -> None:
        """See `ModelRunner.add_stage`."""
        ...

    def drop_stage(self, number: int) -> None:
        """See `ModelRunner.drop_stage`."""
        ...

    def set_served_stage(self, number: int) -> None:
        """See `LayerLoader.set_served_stage`."""
        ...

    def load_adapter(self, number: int, directory: str) -> str:
        """See `RequestAdapters.load`."""
        ...

    def drop_adapter(self, number: int) -> None:
        """See `RequestAdapters.drop`."""
        ...

    def end_step(self, goes_on: bool) -> None:
        """See `BackgroundThrottle.end_step`."""
        ...

    def pause(self) -> None:
        """See `BackgroundThrottle.pause`."""
        ...


class RankLost(ConnectionError):
    """A rank has ended or does not answer. The message names it and says how it ended."""


class RankHandle(Protocol):
    """A rank in another process. Not thread-safe, except `why_lost` and `end`."""

    def wait_built(self, timeout_s: float | None) -> None:
        """Wait until the rank has built its part of the model. Raises RankLost, TimeoutError, or its error."""
        ...

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        """Start a call of a `RankWorker` method, after all earlier calls. Returns a function that waits at most the
        given seconds for the result; it raises the method's error, RankLost or TimeoutError."""
        ...

    def why_lost(self) -> str | None:
        """Describe how the rank ended; None while it lives."""
        ...

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Call `on_lost` with a reason, from any thread, if the rank ends without a call of `end`."""
        ...

    def end(self) -> None:
        """End the rank. Idempotent."""
        ...
