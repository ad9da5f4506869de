"""The delivered events of a request, from which another engine resumes it if its own is lost.

A ledger holds token ids and log-probabilities; the text follows from them.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from quire.async_engine.messages import Event, Preempted, Progress, Resumed, Started
from quire.outputs import Logprob, OutputSoFar, Resumption

MAX_LOSSES = 2  #: lost engines after which a request fails, since it may be the cause


@dataclass(slots=True)
class _Output:
    """A delivered output."""

    token_ids: array[int] = field(default_factory=lambda: array("i"))
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Ledger:
    """Records the events of one request.

    Args:
        resumption: state of a request that ran elsewhere before.
        wants_progress: the reader gets each token. Otherwise the request has delivered nothing before its end, and
            starts again with the same random numbers.
    """

    def __init__(self, resumption: Resumption | None = None, *, wants_progress: bool = True) -> None:
        self.is_started = False  #: `Started` was delivered
        self.num_losses = 0  #: number of lost engines
        self.is_lost = resumption is not None  #: no engine has started it since the last loss
        self._wants_progress = wants_progress
        self._is_paused = False  #: `Preempted` was delivered
        self._before = resumption
        self._started: Started | None = None
        self._first_scheduled_time = resumption.first_scheduled_time if resumption is not None else None
        self._first_token_time = resumption.first_token_time if resumption is not None else None
        self._outputs: dict[int, _Output] = {}
        for index, each in enumerate(resumption.outputs if resumption is not None else ()):
            logprobs = list(each.logprobs) if each.logprobs is not None else None
            self._outputs[index] = _Output(array("i", each.token_ids), logprobs, each.finish_reason, each.stop_reason)

    def record(self, event: Event) -> Event | None:
        """Record an event. Returns the event to deliver, if any: a resumed request does not start twice."""
        if type(event) is Progress:
            if self._first_token_time is None:
                self._first_token_time = time.monotonic()
            outputs = self._outputs
            for delta in event.deltas:
                output = outputs.get(delta.index)
                if output is None:
                    output = outputs[delta.index] = _Output()
                output.token_ids.extend(delta.token_ids)
                if delta.logprobs is not None:
                    output.logprobs = output.logprobs if output.logprobs is not None else []
                    output.logprobs.extend(delta.logprobs)
                if delta.finish_reason is not None:
                    output.finish_reason, output.stop_reason = delta.finish_reason, delta.stop_reason
        elif type(event) is Started:
            self.is_lost = False
            if self.is_started:
                was_paused, self._is_paused = self._is_paused, False
                return Resumed() if was_paused else None
            self.is_started, self._started = True, event
            if self._first_scheduled_time is None:
                self._first_scheduled_time = time.monotonic()
        elif type(event) is Preempted or type(event) is Resumed:
            self._is_paused = type(event) is Preempted
        return event

    def record_loss(self) -> bool:
        """Record the loss of the engine. Returns whether another engine may run the request."""
        self.num_losses += 1
        self.is_lost = True
        return self.num_losses < MAX_LOSSES

    def pause(self) -> bool:
        """Pause the request until another engine runs it. Returns whether to deliver `Preempted`."""
        is_news = self.is_started and self._wants_progress and not self._is_paused
        self._is_paused |= is_news
        return is_news

    def resumption(self, stage: int = 1) -> Resumption | None:
        """Return the state from which another engine resumes the request; None if it has not started."""
        if self._started is None:
            return self._before
        return Resumption(
            self._started.seed,
            tuple(
                OutputSoFar(each.token_ids.tolist(), each.logprobs, each.finish_reason, each.stop_reason)
                for _, each in sorted(self._outputs.items())
            ),
            self._started.cached_tokens,
            max(self._started.stage, stage) if self._outputs else self._started.stage,
            self._first_scheduled_time,
            self._first_token_time,
        )
