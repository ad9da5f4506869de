"""Writing answers: each API has one writer, which turns engine output into a JSON body or into server-sent events."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json
from starlette.types import Scope

from quire.async_engine.messages import Event, Finished, Preempted, Progress, Resumed, Started
from quire.outputs import Delta, RequestOutput
from quire.server.bodies.replies import PromptTokensDetails, StageTokens, Usage
from quire.server.errors import ApiError
from quire.server.generation.generation import GenerationJob
from quire.server.http.access_log import report_usage


class UsageCount:
    """Token counts of one HTTP request, over all its prompts and answers.

    Args:
        has_stages: count tokens by stage of the model, too.
    """

    def __init__(self, *, has_stages: bool) -> None:
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.by_stage: Counter[int] = Counter()  #: tokens of finished answers
        self._cached: dict[int, dict[str, int]] = {}  #: prompt number -> cached tokens by tier
        self._has_stages = has_stages

    def add_prompt(self, number: int, num_tokens: int, cached: dict[str, int]) -> None:
        self.num_prompt_tokens += num_tokens
        self._cached[number] = cached

    def finish_prompt(self, number: int, output: RequestOutput) -> None:
        """Count what is only known at the end: cached tokens by tier, output tokens by stage."""
        self._cached[number] = output.cached_tokens
        for stage, num_tokens in output.stages:
            self.by_stage[stage] += num_tokens

    def add_output(self, number: int, output: RequestOutput) -> None:
        """Count a finished answer to a prompt at once."""
        self.num_prompt_tokens += len(output.prompt_token_ids)
        for completion in output.outputs:
            self.num_output_tokens += len(completion.token_ids)
        self.finish_prompt(number, output)

    def to_usage(self) -> Usage:
        by_tier: Counter[str] = Counter()
        for cached in self._cached.values():
            by_tier += Counter(cached)
        details = PromptTokensDetails(cached_tokens=by_tier.total())
        if by_tier.keys() - {"device"}:
            details.cached_tokens_by_tier = dict(by_tier)
        usage = Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=self.num_output_tokens,
            total_tokens=self.num_prompt_tokens + self.num_output_tokens,
            prompt_tokens_details=details,
        )
        if self._has_stages and self.by_stage:
            usage.stages = [StageTokens(stage=stage, tokens=count) for stage, count in sorted(self.by_stage.items())]
        return usage


def event_of(data: dict[str, Any]) -> bytes:
    """Encode one server-sent event. JSON is ASCII only: some clients break lines at other characters than SSE does."""
    encoded = to_json(data)  # a fifth of the time that `json` takes, and nearly every chunk is ASCII
    if not encoded.isascii():
        encoded = json.dumps(data, separators=(",", ":")).encode()
    return b"data: " + encoded + b"\n\n"


def named_events(events: Sequence[dict[str, Any]]) -> bytes:
    """Encode events with their `type` as the event's name."""
    return b"".join([f"event: {event['type']}\n".encode() + event_of(event) for event in events])


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


class AnswerWriter(ABC):
    """Writes one answer in the form of an API.

    Attributes:
        usage: token counts so far.
    """

    def __init__(self, job: GenerationJob) -> None:
        self.job = job
        self.usage = UsageCount(has_stages=job.model.async_engine.num_stages > 1)

    def report(self, scope: Scope) -> None:
        """Report model and token counts to the access log."""
        counts = {"prompt_tokens": self.usage.num_prompt_tokens, "completion_tokens": self.usage.num_output_tokens}
        report_usage(scope, model=self.job.model.name, **counts)

    @abstractmethod
    def whole(self, outputs: list[RequestOutput]) -> bytes:
        """Return the JSON body of the finished answer; `usage` has counted the outputs."""

    def encode(self, number: int, event: Event) -> bytes:
        """Return the server-sent events for an event of prompt `number`."""
        match event:
            case Progress():
                return b"".join([self._encode_delta(number, delta) for delta in event.deltas])
            case Started():
                self.usage.add_prompt(number, len(event.prompt_token_ids), event.cached_tokens)
                return self._open(number, event)
            case Preempted():
                return comment("preempted")
            case Resumed():
                return comment("resumed")
            case Finished():
                self.usage.finish_prompt(number, event.output)
        return b""

    @abstractmethod
    def _open(self, number: int, event: Started) -> bytes:
        """Return the events before the first text of a prompt's answer."""

    @abstractmethod
    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        """Return the events for new tokens, and count the tokens."""

    @abstractmethod
    def close(self) -> bytes:
        """Return the events after the last answer."""

    @abstractmethod
    def fail(self, error: ApiError) -> bytes:
        """Return the last events of a stream that failed after it had started."""
