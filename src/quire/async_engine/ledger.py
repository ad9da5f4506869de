"""What a request's reader has been given, so that another engine goes on behind it where the request's own is lost.

Kept by whoever hands events to the reader. It holds token ids and log-probabilities; the text is made of them again.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from quire.async_engine.messages import Event, Preempted, Progress, Resumed, Started
from quire.outputs import Logprob, OutputSoFar, Resumption

MAX_LOSSES = 2  #: engines that may be lost with a request: it may be what ends them


@dataclass(slots=True)
class _Output:
    """One of the request's outputs."""

    token_ids: array[int] = field(default_factory=lambda: array("i"))
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Ledger:
    """Takes note of the events of one request.

    Args:
        resumption: how far it had come elsewhere, before its first event here.
        wants_progress: its reader is told of each token. Else it has been given nothing before the end, and begins anew
            with the same random numbers.
    """

    def __init__(self, resumption: Resumption | None = None, *, wants_progress: bool = True) -> None:
        self.is_started = False  #: its reader has been told that it has begun
        self.num_losses = 0  #: engines that were lost with it
        self.is_lost = resumption is not None  #: its engine was lost, and no other one has begun with it
        self._wants_progress = wants_progress
        self._is_paused = False  #: its reader has been told that it waits
        self._before = resumption
        self._started: Started | None = None
        self._first_scheduled_time = resumption.first_scheduled_time if resumption is not None else None
        self._first_token_time = resumption.first_token_time if resumption is not None else None
        self._outputs: dict[int, _Output] = {}
        for index, each in enumerate(resumption.outputs if resumption is not None else ()):
            logprobs = list(each.logprobs) if each.logprobs is not None else None
            self._outputs[index] = _Output(array("i", each.token_ids), logprobs, each.finish_reason, each.stop_reason)

    def take(self, event: Event) -> Event | None:
        """Take note of an event. Returns what the reader is to be given in its place, if anything: a request that goes
        on in another engine has not started a second time."""
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

    def lose(self) -> bool:
        """The request's engine was lost. Returns whether another one may try it."""
        self.num_losses += 1
        self.is_lost = True
        return self.num_losses < MAX_LOSSES

    def pause(self) -> bool:
        """The request waits for another engine. Returns whether its reader is to be told that, by `Preempted`."""
        is_news = self.is_started and self._wants_progress and not self._is_paused
        self._is_paused |= is_news
        return is_news

    def resumption(self, stage: int = 1) -> Resumption | None:
        """What another engine needs to go on with the request; None where it has not begun.

        Args:
            stage: of the model, at which the lost engine was.
        """
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
