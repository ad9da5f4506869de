"""The admission gate of a model: which requests enter the queue, and which wait for the model to load."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from quire.async_engine.messages import EngineUnavailable, ModelState, QueueFull
from quire.async_engine.open_requests import OpenRequests


class AdmissionGate:
    """Admits requests to a model, or lets them wait until it is loaded. `len` is the number of waiting requests.

    `lock` guards `requests`, this object and `state`; `max_queue` limits requests that wait here or for their first
    step, beyond which tenants below their share are still admitted; `error` is the reason for a failure or a reload.
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
        self.retry_at: float | None = None  #: time of the next load of a failed model (`time.monotonic`)
        self._name = name
        self._requests = requests
        self._lock = lock
        self._wake = wake
        self._max_queue = max_queue
        self._wait_s = wait_s
        self._is_closed = False
        self._num_holds = 0
        self._changes: set[Future[None]] = set()  #: pending waits

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def shown_state(self) -> ModelState:
        """The model's state as clients see it."""
        return ModelState.DRAINING if self._is_closed and self.state is not ModelState.FAILED else self.state

    @property
    def num_queued(self) -> int:
        """Requests that have not started, including those that wait here."""
        return self._requests.num_unstarted + len(self._changes)

    @property
    def is_pending(self) -> bool:
        """Whether the model takes no requests yet, but will."""
        is_held = self._num_holds > 0 and self.shown_state is ModelState.READY
        return is_held or self.shown_state in (ModelState.LOADING, ModelState.UNLOADED)

    def check(self, tenant: str = "") -> None:
        """Raise EngineUnavailable if the model is not ready, or QueueFull if too many requests wait."""
        if self.shown_state is not ModelState.READY:
            raise self.unavailable()
        self._check_queue(tenant)

    def _check_queue(self, tenant: str = "") -> None:
        most, queued, unstarted = self._max_queue, self.num_queued, self._requests.unstarted
        if most is None or queued < most:
            return
        share = most // len({*unstarted, tenant})
        if not tenant or unstarted[tenant] >= share or queued >= 2 * most:
            raise QueueFull(f"{self.num_queued} requests wait for {self._name} already; try again later")

    def unavailable(self) -> EngineUnavailable:
        """Return an error with the reason."""
        match self.shown_state:
            case ModelState.DRAINING:
                return EngineUnavailable(f"{self._name} is shutting down and takes no further requests")
            case ModelState.FAILED:
                if self.retry_at is None:
                    return EngineUnavailable(f"{self._name} cannot be served: {self.error}")
                left_s = max(1, math.ceil(self.retry_at - time.monotonic()))
                message = f"{self._name} cannot be served: {self.error}; it is loaded again in {left_s} s"
                return EngineUnavailable(message, left_s)
        return EngineUnavailable(f"{self._name} is being loaded; try again soon")

    async def wait(self) -> None:
        """Wait up to `wait_s` for a pending model, and load an unloaded one; raises as `check`, which must follow."""
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
        """Return a future for the next change of a pending model; None if it is not pending."""
        with self._lock:
            if not self.is_pending:
                return None
            self._check_queue()
            if not self._num_holds:
                self.load()
            change: Future[None] = Future()
            self._changes.add(change)
        return change

    def set_state(self, state: ModelState, error: str | None, retry_s: float | None = None) -> None:
        """Set the engine's state, and end all waits if it is no longer pending."""
        with self._lock:
            self.state, self.error = state, error
            self.retry_at = None if retry_s is None else time.monotonic() + retry_s
            if not self.is_pending:
                self._end_waits()

    def hold(self) -> None:
        """Let further requests wait until `release`, although the model is ready or could be loaded."""
        with self._lock:
            self._num_holds += 1

    def release(self) -> None:
        """End one `hold`."""
        with self._lock:
            self._num_holds -= 1
            self._end_waits()

    def load(self) -> None:
        """Load a model that is unloaded, or has failed for good."""
        with self._lock:
            is_failed = self.state is ModelState.FAILED and self.retry_at is None
            if not self._is_closed and (is_failed or self.state is ModelState.UNLOADED):
                self.state, self.error = ModelState.LOADING, None
                self._wake()

    def close(self) -> None:
        """Admit no further request."""
        with self._lock:
            self._is_closed = True
            self._end_waits()

    def _end_waits(self) -> None:
        for change in self._changes:
            if change.set_running_or_notify_cancel():
                change.set_result(None)
        self._changes.clear()
