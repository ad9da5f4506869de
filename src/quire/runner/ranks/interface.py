"""The handle through which the first rank drives another: a process or an actor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

GRACE_S = 10.0  #: time for all ranks to end a step that failed on one of them


class RankLost(ConnectionError):
    """A rank has ended or does not answer. The message names it and says how it ended."""


class RankHandle(Protocol):
    """A rank in another process. Not thread-safe, except `why_lost` and `end`."""

    def wait_built(self, timeout_s: float | None) -> None:
        """Wait until the rank has built its part of the model. Raises RankLost, TimeoutError, or its error."""
        ...

    def call(self, method: str, *args: Any) -> Callable[[float | None], Any]:
        """Start a call of a method of `assembly.rank.ModelRank`, after all earlier calls. Returns a function that waits
        at most the given seconds for the result; it raises the method's error, RankLost or TimeoutError."""
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
