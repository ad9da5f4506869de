"""Sending an answer: as one JSON body, or as server-sent events while it is generated.

Each API has one writer. An idle stream sends comments, so that proxies keep it open; clients do not see them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.async_engine.messages import Event, Finished, Preempted, Progress, Resumed, Started
from quire.outputs import Delta, RequestOutput
from quire.server.bodies.replies import PromptTokensDetails, StageTokens, Usage
from quire.server.errors import ApiError, error_response
from quire.server.generation.generation import GenerationJob
from quire.server.http.middleware import report_usage
from quire.server.http.protocol import ClientDisconnected, run_while_connected


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


logger = logging.getLogger("quire")

_REJECTED_WITHIN_S = 1.0  # a request that can never be served is rejected by then; a longer wait is part of the stream
_Batch = list[tuple[int, Event]]


async def send_answer(
    request: Request, job: GenerationJob, writer: AnswerWriter, *, is_streamed: bool, keep_alive_s: float
) -> Response:
    """Run the prompts and return the answer. A client that leaves aborts them.

    Args:
        keep_alive_s: seconds without events after which a stream sends a comment.

    Raises:
        ApiError: a prompt cannot be served, or failed.
        ClientDisconnected: the client left before the answer was complete.
    """
    if is_streamed:
        return StreamedAnswer(job, writer, keep_alive_s)
    outputs = await run_while_connected(request.receive, job.outputs())
    for number, output in enumerate(outputs):
        writer.usage.add_output(number, output)
    body = writer.whole(outputs)
    writer.report(request.scope)
    return Response(body, media_type="application/json", headers=job.stage_headers)


class StreamedAnswer(Response):
    """A streamed answer. A rejection before it starts is an ordinary error, a later failure an event."""

    media_type = "text/event-stream"

    def __init__(self, job: GenerationJob, writer: AnswerWriter, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._job = job
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._has_news = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(receive, self._answer(scope, receive, send))
        except ClientDisconnected:
            logger.debug("%s: the client left its stream", self._job.request_id)
        finally:
            self._writer.report(scope)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._job.events()) as batches:
            first = asyncio.ensure_future(anext(batches))
            try:
                await asyncio.wait({first}, timeout=min(_REJECTED_WITHIN_S, self._keep_alive_s))
                if first.done() and (error := first.exception()) is not None:
                    if not isinstance(error, ApiError):
                        raise error
                    await error_response(error)(scope, receive, send)
                    return
                self.headers.update(self._job.stage_headers)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._stream(first, batches, send)
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    async def _stream(self, first: asyncio.Future[_Batch], batches: AsyncGenerator[_Batch, None], send: Send) -> None:
        comments = asyncio.create_task(self._keep_alive(send))
        try:
            try:
                await self._send_batch(await first, send)
                async for batch in batches:
                    await self._send_batch(batch, send)
                end = self._writer.close()
            except ApiError as error:
                end = self._writer.fail(error)
            except Exception:
                logger.exception("%s: the stream failed", self._job.request_id)
                end = self._writer.fail(ApiError(500, "the server failed; its log says why"))
            comments.cancel()
            await send({"type": "http.response.body", "body": end, "more_body": False})
        finally:
            comments.cancel()
            await asyncio.gather(comments, return_exceptions=True)

    async def _send_batch(self, batch: _Batch, send: Send) -> None:
        if data := b"".join([self._writer.encode(number, event) for number, event in batch]):
            self._has_news = True
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            if not self._has_news:
                await send({"type": "http.response.body", "body": comment("keep-alive"), "more_body": True})
            self._has_news = False
