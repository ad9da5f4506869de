"""How far a model has come: for those who look on while it is loaded, and for those who wait for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from quire.async_engine.messages import EngineUnavailable, ModelState, QueueFull
from quire.async_engine.open_requests import OpenRequests
from quire.outputs import LoadProgress

logger = logging.getLogger("quire")

_BEGIN = LoadProgress(stage=0, num_stages=1, bytes_loaded=0, bytes_total=0, phase="imports")


class LoadWatch:
    """Args:
        name: of the model.
        on_progress: called with `progress` whenever it changes, in the thread of whoever said so.

    Attributes:
        progress: None before loading has begun for the first time.
    """

    def __init__(self, name: str, on_progress: Callable[[LoadProgress], None]) -> None:
        self.progress: LoadProgress | None = None
        self._name = name
        self._on_progress = on_progress

    @property
    def stage(self) -> int:
        """That serves: 1 before anything is known, and 0 while the first one is missing."""
        return self.progress.stage if self.progress is not None else 1

    def begin(self) -> None:
        """Loading begins, be it again."""
        self._note(_BEGIN)

    def take(self, progress: LoadProgress, *, is_ready: bool) -> None:
        """Loading has come further.

        Args:
            is_ready: the model serves already.
        """
        if is_ready and progress.num_stages == 1 and progress.error is None:
            progress = replace(progress, stage=1)  # the rest of a model without stages, which serves meanwhile
        if progress.num_stages > 1 and progress.stage > (self.progress.stage if self.progress is not None else 0):
            logger.info("%s: %s", self._name, _describe(progress))
        self._note(progress)

    def note_ready(self) -> None:
        """A model without stages serves."""
        self._note(replace(self.progress or _BEGIN, stage=1))

    def note_failed(self, error: str | None) -> None:
        """It never will be there."""
        self._note(replace(self.progress or _BEGIN, stage=0, error=error, phase="failed"))

    def note_unloaded(self) -> None:
        """Its memory was given back."""
        self._note(replace(self.progress or _BEGIN, stage=0, bytes_loaded=0, seconds_left=None, phase="unloaded"))

    def _note(self, progress: LoadProgress) -> None:
        self.progress = progress
        self._on_progress(progress)


class Door:
    """Whether a model takes requests, and those who wait until it does: `len` is how many.

    Args:
        name: of the model.
        requests: that it has taken.
        lock: over them and all of this.
        wake: called where it was unloaded, and is wanted.
        max_queue: requests that may wait, here or for their first step; None is without limit.
        wait_s: for so long they wait here.

    Attributes:
        state: of the engine; to be changed under the lock.
        error: why it has failed, or is being loaded again.
    """

    def __init__(
        self,
        name: str,
        requests: OpenRequests,
        lock: threading.RLock,
        wake: Callable[[], None],
        *,
        max_queue: int | None,
        wait_s: float,
    ) -> None:
        self.state = ModelState.LOADING
        self.error: str | None = None
        self._name = name
        self._requests = requests
        self._lock = lock
        self._wake = wake
        self._max_queue = max_queue
        self._wait_s = wait_s
        self._is_closed = False
        self._changes: set[Future[None]] = set()  #: what those who wait here wait for

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def shown_state(self) -> ModelState:
        """The model's, as clients see it."""
        return ModelState.DRAINING if self._is_closed and self.state is not ModelState.FAILED else self.state

    @property
    def num_queued(self) -> int:
        """Requests that have not started, and those that wait here."""
        return self._requests.num_unstarted + len(self._changes)

    @property
    def is_coming(self) -> bool:
        """Whether it does not take requests yet, and will."""
        return self.shown_state in (ModelState.LOADING, ModelState.UNLOADED)

    def check(self) -> None:
        """Return where it takes one more request.

        Raises:
            EngineUnavailable: it does not; the message says why.
            QueueFull: too many wait.
        """
        if self.shown_state is not ModelState.READY:
            raise self.unavailable()
        self._check_queue()

    def _check_queue(self) -> None:
        if self._max_queue is not None and self.num_queued >= self._max_queue:
            raise QueueFull(f"{self.num_queued} requests wait for {self._name} already; try again later")

    def unavailable(self) -> EngineUnavailable:
        """Why it takes none."""
        match self.shown_state:
            case ModelState.DRAINING:
                return EngineUnavailable(f"{self._name} is shutting down and takes no further requests")
            case ModelState.FAILED:
                return EngineUnavailable(f"{self._name} cannot be served: {self.error}")
        return EngineUnavailable(f"{self._name} is being loaded; try again soon")

    async def wait(self) -> None:
        """Wait as long as it is coming, and have it loaded where it was unloaded. `check` is to follow.

        Raises:
            EngineUnavailable: it is not there within `wait_s`.
            QueueFull: too many wait.
        """
        deadline = time.monotonic() + self._wait_s
        while (change := self._expect_change()) is not None:
            try:
                await asyncio.wait_for(asyncio.wrap_future(change), deadline - time.monotonic())
            except TimeoutError:
                raise self.unavailable() from None
            finally:
                with self._lock:
                    self._changes.discard(change)

    def _expect_change(self) -> Future[None] | None:
        """What is done once the model may take requests; None where there is nothing to wait for."""
        with self._lock:
            if not self.is_coming:
                return None
            self._check_queue()
            if self.state is ModelState.UNLOADED:
                self.state = ModelState.LOADING
                self._wake()
            change: Future[None] = Future()
            self._changes.add(change)
        return change

    def set_state(self, state: ModelState, error: str | None) -> None:
        """The engine is in another state. All who wait look again, where they need not wait any more."""
        with self._lock:
            self.state, self.error = state, error
            if not self.is_coming:
                self._end_waits()

    def close(self) -> None:
        """No further request is taken."""
        with self._lock:
            self._is_closed = True
            self._end_waits()

    def _end_waits(self) -> None:
        for change in self._changes:
            if change.set_running_or_notify_cancel():
                change.set_result(None)
        self._changes.clear()


def _describe(progress: LoadProgress) -> str:
    """A stage that serves from now on, in words."""
    if progress.is_complete:
        what = "the whole model" if progress.stage == progress.num_stages else "no later one is loaded"
        return f"stage {progress.stage} of {progress.num_stages} serves: {what}"
    share = f", {progress.bytes_loaded / progress.bytes_total:.0%} is loaded" if progress.bytes_total else ""
    left = f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
    return f"stage {progress.stage} of {progress.num_stages} serves{share}{left}"
