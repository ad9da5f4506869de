"""What becomes of requests whose engine was lost: the next one goes on with them, or their readers are told that none
will."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quire.async_engine.ledger import MAX_LOSSES
from quire.async_engine.load_watch import LoadWatch
from quire.async_engine.messages import EngineLost, Preempted
from quire.async_engine.open_requests import OpenRequest, OpenRequests
from quire.outputs import RequestOutput

logger = logging.getLogger("quire")


@dataclass(frozen=True, slots=True)
class Losses:
    """Requests that one engine was lost with, until their readers are told."""

    sent_again: list[OpenRequest]
    paused: list[OpenRequest]  #: of those, whose readers do not know yet that they wait
    given_up: list[OpenRequest]


class Failover:
    """Args:
    name: of the model.
    requests: that have not ended.
    loading: of the model.
    lock: of `requests`.
    wait_s: for so long requests wait for the next engine, and for the stage of the model that the lost one was at; 0
        gives them up at once.
    on_finished: is told of each request that is given up.
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
        self._waits: dict[OpenRequest, tuple[float, str | None]] = {}  #: until when (`time.monotonic`), for what error
        self._timer: threading.Timer | None = None  #: for the first of them

    def send_again(self, lost: Sequence[OpenRequest], error: str | None) -> Losses:
        """Have the next engine go on with requests, behind what their readers have been given. Not for ever: a request
        itself may be what breaks engines. `tell` is to follow, without the lock.

        Args:
            error: by which the engine was lost.
        """
        losses = Losses([], [], [])
        with self._lock:
            for request in lost:
                if not request.ledger.lose() or not self._wait_s > 0:
                    losses.given_up.append(request)
                    continue
                losses.sent_again.append(request)
                if request.ledger.pause():
                    losses.paused.append(request)
                resumption = request.ledger.resumption(self._loading.stage)
                self._requests.add_again(request, replace(request.add, resumption=resumption))
                self.watch(request, error)
        return losses

    def give_up(self, lost: Sequence[OpenRequest]) -> Losses:
        """No engine is to go on with requests. `tell` is to follow, without the lock."""
        return Losses([], [], list(lost))

    def tell(self, losses: Losses, error: str | None) -> None:
        """Tell readers that their requests wait for another engine, or that none will have them.

        Args:
            error: by which the engine was lost.
        """
        num_again = len(losses.sent_again)
        if num_lost := num_again + len(losses.given_up):
            logger.info(
                "%s: of %d requests that were there, %d go on in another engine", self._name, num_lost, num_again
            )
        for request in losses.given_up:
            times = f"{request.ledger.num_losses} times " if request.ledger.num_losses >= MAX_LOSSES else ""
            self._give_up(request, f"the engine failed {times}while it had this request: {error}")
        for request in losses.paused:
            request.tell(Preempted())

    def watch(self, request: OpenRequest, error: str | None = None) -> None:
        """Give a request up whose engine was lost, be it elsewhere, where what it needs is not there in time."""
        with self._lock:
            self._waits.pop(request, None)
            self._waits[request] = time.monotonic() + self._wait_s, error  # the last one to be given up
            if self._timer is None:
                self._wait_for_first()

    def close(self) -> None:
        """Nobody waits any more."""
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
        given_up: list[tuple[OpenRequest, str]] = []
        with self._lock:
            self._timer = None
            now = time.monotonic()
            for request in [each for each, (until, _) in self._waits.items() if until <= now]:
                _, error = self._waits.pop(request)
                if request.ledger.is_lost and (missing := self._missing(request, error)) is not None:
                    given_up.append((request, missing))
            if self._waits:
                self._wait_for_first()
        for request, missing in given_up:
            self._give_up(request, f"the engine failed while it had this request, and {missing}")

    def _missing(self, request: OpenRequest, error: str | None) -> str | None:
        """What is not there of what a request needs; None where it only waits for its turn."""
        progress = self._loading.progress
        needed = min(request.add.first_stage, progress.last_stage or progress.num_stages if progress is not None else 1)
        if self._loading.stage >= needed:
            return None
        what = ""
        if progress is not None and progress.stage > 0:
            what, error = f"stage {needed} of the model, at which it was, ", progress.error
        return f"{what}is not there again after {self._wait_s:g} s" + (f": {error}" if error is not None else "")

    def _give_up(self, request: OpenRequest, message: str) -> None:
        if self._requests.cut_off(request, EngineLost(message), is_told=True):
            self._on_finished(request.add.output("error", message))
