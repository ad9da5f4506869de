"""Failover: resume the requests of a lost engine on its replacement, or fail them with an error.

A request may have ended the engine, and would end the next one. Each request that was in a step is a suspect: the next
engine runs it alone for some steps, while all others wait. A suspect that ends this engine too fails.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quire.async_engine.load_watch import LoadWatch
from quire.async_engine.messages import EngineLost, PoisonRequest, Preempted, StepReport
from quire.async_engine.open_requests import OpenRequest, OpenRequests
from quire.outputs import RequestOutput

logger = logging.getLogger("quire")

MAX_LOSSES = 2  #: lost engines after which a request is a suspect, or fails if its replica runs others beside it
_TRIAL_STEPS = 4  # of a suspect alone, beyond the step at which the engine was lost
_REPEATED_STEPS = 1024  # of all suspects together, for tokens that were generated and not delivered
_MAX_NAMES = 20


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
        self._suspects: deque[OpenRequest] = deque()  #: suspects that have not been tried
        self._alone: OpenRequest | None = None  #: the suspect that the engine runs
        self._steps_left = 0.0  #: of its trial

    def take_back(self, lost: Sequence[OpenRequest], error: str | None) -> Losses:
        """Hold the requests of a lost engine until `resume`; a suspect that was alone fails. Call `notify` afterwards,
        without the lock."""
        losses = Losses([], [], [])
        with self._lock:
            sent = [request for request in lost if request.is_sent]
            for request in sent:
                request.ledger.record_loss()
            suspects = [each for each in sent if each.is_scheduled or each.ledger.num_losses >= MAX_LOSSES] or sent
            for request in suspects:
                request.num_suspicions += 1
                steps = self._requests.num_steps - request.first_step
                repeated = 0 if request.ledger.has_outputs else min(steps, _REPEATED_STEPS // len(suspects))
                request.trial_steps = _TRIAL_STEPS + repeated if request.num_suspicions == 1 else math.inf
            self._suspects.extend(each for each in suspects if each is not self._alone)
            self._requests.is_held = self._wait_s > 0
            for request in lost:
                if request is self._alone or not self._wait_s > 0:
                    losses.failed.append(request)
                else:
                    self._take_back(request, losses, error)
            self._alone = None
        if suspects:
            names = ", ".join(each.add.request_id for each in suspects[:_MAX_NAMES])
            logger.warning("%s: %d requests in the step of the lost engine: %s", self._name, len(suspects), names)
        return losses

    def resend(self, lost: Sequence[OpenRequest], error: str | None) -> Losses:
        """Send requests of a lost replica to another one, which continues behind the delivered events. A request that
        was lost `MAX_LOSSES` times fails. Call `notify` afterwards, without the lock."""
        losses = Losses([], [], [])
        with self._lock:
            for request in lost:
                request.ledger.record_loss()
                if request.ledger.num_losses >= MAX_LOSSES or not self._wait_s > 0:
                    losses.failed.append(request)
                else:
                    self._take_back(request, losses, error)
                    self._requests.send(request)
        return losses

    def _take_back(self, request: OpenRequest, losses: Losses, error: str | None) -> None:
        losses.resent.append(request)
        if request.ledger.pause():
            losses.paused.append(request)
        self._requests.take_back(request, request.ledger.resumption(self._loading.stage))
        self.watch(request, error)

    def resume(self) -> None:
        """Send the held requests to a new engine: the suspects one by one, then the others."""
        with self._lock:
            if self._requests.is_held:
                self._try_next()

    def observe(self, report: StepReport | None = None) -> None:
        """Continue with the next suspect once the one that runs has ended or has passed its trial."""
        with self._lock:
            request = self._alone
            if request is None:
                return
            if self._requests.get(request.add.key) is not None:
                if report is None or report.stats is None or request.ledger.is_lost:
                    return  # a late report of the suspect before it, or no step
                self._steps_left -= report.stats.num_sampled_tokens > 0
                if self._steps_left > 0:
                    return
                if self._suspects:  # the next one needs an engine without others
                    self._requests.take_back(request, request.ledger.resumption(self._loading.stage))
            self._try_next()

    def _try_next(self) -> None:
        self._alone = None
        while self._suspects and self._alone is None:
            request = self._suspects.popleft()
            if self._requests.get(request.add.key) is not None:
                self._alone, self._steps_left = request, request.trial_steps
        if self._alone is not None:
            self._requests.send(self._alone)
            return
        self._requests.is_held = False
        held = [request for request in self._requests.values() if not request.is_sent]
        for request in sorted(held, key=lambda request: request.add.arrival_time):
            self._requests.send(request)

    def notify(self, losses: Losses, error: str | None) -> None:
        """Notify readers that their requests wait for another engine or have failed."""
        num_resent = len(losses.resent)
        if num_lost := num_resent + len(losses.failed):
            logger.info("%s: %d of %d lost requests go on in another engine", self._name, num_resent, num_lost)
        for request in losses.failed:
            num_losses = request.ledger.num_losses
            times = f"{num_losses} times " if num_losses >= MAX_LOSSES else ""
            kind = PoisonRequest if request.num_suspicions >= MAX_LOSSES else EngineLost
            self._fail(request, kind(f"the engine failed {times}while it had this request: {error}"))
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
            self._fail(request, EngineLost(f"the engine failed while it had this request, and {missing}"))
        self.observe()

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

    def _fail(self, request: OpenRequest, error: EngineLost) -> None:
        if self._requests.cut_off(request, error, is_reported=True):
            self._on_finished(request.add.output("error", str(error)))
