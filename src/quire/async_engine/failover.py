"""What becomes of requests whose engine was lost: the next one goes on with them, or their readers are told that none
will."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quire.async_engine.ledger import MAX_LOSSES
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
    lock: of `requests`.
    wait_s: for so long requests wait for the next engine; 0 gives them up at once.
    on_finished: is told of each request that is given up.
    """

    def __init__(
        self,
        name: str,
        requests: OpenRequests,
        lock: threading.RLock,
        wait_s: float,
        on_finished: Callable[[RequestOutput], None],
    ) -> None:
        self._name = name
        self._requests = requests
        self._lock = lock
        self._wait_s = wait_s
        self._on_finished = on_finished
        self._end_of_wait: threading.Timer | None = None  #: for the next engine

    def send_again(self, lost: Sequence[OpenRequest], stage: int) -> Losses:
        """Have the next engine go on with requests, behind what their readers have been given. Not for ever: a request
        itself may be what breaks engines. `tell` is to follow, without the lock.

        Args:
            stage: of the model, at which the lost engine was.
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
                self._requests.add_again(request, replace(request.add, resumption=request.ledger.resumption(stage)))
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

    def begin_wait(self, error: str | None) -> None:
        """An engine is being loaded, after that error: requests that were sent again wait for it as long as new ones
        do, unless `end_wait` comes before."""
        timer = threading.Timer(min(self._wait_s, threading.TIMEOUT_MAX), lambda: self._give_all_up(timer, error))
        timer.daemon = True
        with self._lock:
            self._end_of_wait = timer
        timer.start()

    def end_wait(self) -> None:
        """The engine is there, or never will be."""
        with self._lock:
            if self._end_of_wait is not None:
                self._end_of_wait.cancel()
            self._end_of_wait = None

    def _give_all_up(self, timer: threading.Timer, error: str | None) -> None:
        with self._lock:
            lost = self._requests.values() if self._end_of_wait is timer else []
        for request in lost:
            why = f"the engine failed while it had this request, and is not there again after {self._wait_s:g} s"
            self._give_up(request, f"{why}: {error}")

    def _give_up(self, request: OpenRequest, message: str) -> None:
        if self._requests.cut_off(request, EngineLost(message), is_told=True):
            self._on_finished(request.add.output("error", message))
