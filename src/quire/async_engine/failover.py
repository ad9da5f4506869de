"""Failover: resume the requests of a lost engine on its replacement, or fail them with an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quire.async_engine.load_watch import LoadWatch
from quire.async_engine.messages import EngineLost, Preempted
from quire.async_engine.open_requests import MAX_LOSSES, OpenRequest, OpenRequests
from quire.outputs import RequestOutput

logger = logging.getLogger("quire")


@dataclass(frozen=True, slots=True)
class Losses:
    """Requests of a lost engine whose readers have yet to be notified."""

    resent: list[OpenRequest]
    paused: list[OpenRequest]  #: resent ones that must report `Preempted`
    failed: list[OpenRequest]


class Failover:
    """Resumes or fails the requests of a lost engine.

    `wait_s` limits the wait for the next engine and for the stage of the lost one; 0 fails requests at once.
    """

    def __init__(
        self,
        name: str,
        requests: OpenRequests,
        loading: LoadWatch,
        lock: threading.RLock,
        wait_s: float,
        on_finished: Callable[[RequestOutput], None],
    ) -> None:
        self._name = name
        self._requests = requests
        self._loading = loading
        self._lock = lock
        self._wait_s = wait_s
        self._on_finished = on_finished
        self._waits: dict[OpenRequest, tuple[float, str | None]] = {}  #: deadline and error of each wait, in order
        self._timer: threading.Timer | None = None  #: ends the first wait

    def resend(self, lost: Sequence[OpenRequest], error: str | None) -> Losses:
        """Send requests to the next engine, which continues behind the delivered events. A request that was lost
        `MAX_LOSSES` times fails, since it may be the cause. Call `notify` afterwards, without the lock.
        """
        losses = Losses([], [], [])
        with self._lock:
            for request in lost:
                if not request.ledger.record_loss() or not self._wait_s > 0:
                    losses.failed.append(request)
                    continue
                losses.resent.append(request)
                if request.ledger.pause():
                    losses.paused.append(request)
                resumption = request.ledger.resumption(self._loading.stage)
                self._requests.resend(request, replace(request.add, resumption=resumption))
                self.watch(request, error)
        return losses

    def fail(self, lost: Sequence[OpenRequest]) -> Losses:
        """Fail requests. Call `notify` afterwards, without the lock."""
        return Losses([], [], list(lost))

    def notify(self, losses: Losses, error: str | None) -> None:
        """Notify readers that their requests wait for another engine or have failed."""
        num_resent = len(losses.resent)
        if num_lost := num_resent + len(losses.failed):
            logger.info("%s: %d of %d lost requests go on in another engine", self._name, num_resent, num_lost)
        for request in losses.failed:
            times = f"{request.ledger.num_losses} times " if request.ledger.num_losses >= MAX_LOSSES else ""
            self._fail(request, f"the engine failed {times}while it had this request: {error}")
        for request in losses.paused:
            request.notify(Preempted())

    def watch(self, request: OpenRequest, error: str | None = None) -> None:
        """Fail a lost request if its engine and stage are not available in time."""
        with self._lock:
            self._waits.pop(request, None)
            self._waits[request] = time.monotonic() + self._wait_s, error  # behind the others
            if self._timer is None:
                self._wait_for_first()

    def close(self) -> None:
        """End all waits."""
        with self._lock:
            self._waits.clear()
            if self._timer is not None:
                self._timer.cancel()

    def _wait_for_first(self) -> None:
        until, _ = next(iter(self._waits.values()))
        self._timer = threading.Timer(min(until - time.monotonic(), threading.TIMEOUT_MAX), self._end_waits)
        self._timer.daemon = True
        self._timer.start()

    def _end_waits(self) -> None:
        overdue: list[tuple[OpenRequest, str]] = []
        with self._lock:
            self._timer = None
            now = time.monotonic()
            for request in [each for each, (until, _) in self._waits.items() if until <= now]:
                _, error = self._waits.pop(request)
                if request.ledger.is_lost and (missing := self._missing(request, error)) is not None:
                    overdue.append((request, missing))
            if self._waits:
                self._wait_for_first()
        for request, missing in overdue:
            self._fail(request, f"the engine failed while it had this request, and {missing}")

    def _missing(self, request: OpenRequest, error: str | None) -> str | None:
        """Describe what a request still waits for; None if engine and stage are available."""
        progress = self._loading.progress
        needed = min(request.add.first_stage, progress.last_stage or progress.num_stages if progress is not None else 1)
        if self._loading.stage >= needed:
            return None
        what = ""
        if progress is not None and progress.stage > 0:
            what, error = f"stage {needed} of the model, at which it was, ", progress.error
        return f"{what}is not there again after {self._wait_s:g} s" + (f": {error}" if error is not None else "")

    def _fail(self, request: OpenRequest, message: str) -> None:
        if self._requests.cut_off(request, EngineLost(message), is_reported=True):
            self._on_finished(request.add.output("error", message))
