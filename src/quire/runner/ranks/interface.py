"""What a rank is asked, and how the rank that drives the others reaches them: processes here, actors elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quire.outputs import SchedulerOutput, StepOutput, StoreChanges

GRACE_S = 10.0  #: for all ranks to end a step that failed on one of them; else they wait for each other for good


class RankWorker(Protocol):
    """One rank of a model. It does not know by whom it is called: all that goes in and comes out survives pickling.

    Every rank is given the same steps in the same order, and a step ends on none before all have come to it.
    """

    def execute(self, out: SchedulerOutput) -> StepOutput:
        """See `Runner.execute`. Only the first rank draws tokens; the others are told of them with the next step."""
        ...

    def poll_store(self) -> StoreChanges | None:
        """See `Runner.poll_store`: of this rank's slices."""
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

    def end_step(self, goes_on: bool) -> None:
        """Give the loading of further stages its turn; see `Turns.end_step`."""
        ...

    def pause(self) -> None:
        """No step follows for now; see `Turns.pause`."""
        ...


class RankLost(ConnectionError):
    """A rank has ended, or does not answer. The message names it, and says what is known of its end."""


class RankHandle(Protocol):
    """A rank elsewhere, as the first rank sees it. For one thread, but for `why_lost` and `end`."""

    def wait_built(self, timeout_s: float | None) -> None:
        """Return once the rank has its part of the model.

        Raises:
            RankLost: it has ended.
            TimeoutError: it has no part yet.
            Exception: what went wrong there.
        """
        ...

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        """Have the rank call a method of its `RankWorker`, after all that it was asked before. Returns at once.

        Returns:
            A wait for the result, with a limit in seconds (None: none). It raises what the method raised, RankLost
            where the rank has ended, and TimeoutError.
        """
        ...

    def why_lost(self) -> str | None:
        """What ended the rank, in words that name it; None while it lives."""
        ...

    def watch(self, tell: Callable[[str], None]) -> None:
        """Have somebody told, from any thread, why the rank ended, where `end` was not called before."""
        ...

    def end(self) -> None:
        """End the rank, whatever it does. May be called twice."""
        ...
