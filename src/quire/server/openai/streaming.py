"""Answers as server-sent events: one event a chunk, the usage at the end if it is asked for, then [DONE].

A stream without news sends comments, so that proxies keep it open; clients do not see them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from json.encoder import encode_basestring_ascii
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.async_engine.messages import Event, Finished, Preempted, Progress, Resumed, Started
from quire.outputs import Delta, RequestOutput
from quire.server.bodies.replies import PromptTokensDetails, StageTokens, Usage
from quire.server.errors import ApiError, error_body, error_response
from quire.server.http.access_log import note_usage
from quire.server.http.connection import ClientDisconnected, run_while_connected
from quire.server.http.protocol import BODY_WRITER, BodyWriter
from quire.server.openai.generation import Generation
from quire.server.openai.response import ResponseBuilder

logger = logging.getLogger("quire")

DONE = b"data: [DONE]\n\n"
_TEXT = "\0text\0"  # stands for the text in the pattern of a chunk
_REFUSED_WITHIN_S = 1.0  # a request that can never be served is refused by then; a longer wait is part of the stream


class UsageCount:
    """The tokens of one HTTP request: all its prompts and all their answers.

    Args:
        has_stages: the model has several stages, so it is told which made how many tokens.
    """

    def __init__(self, *, has_stages: bool = False) -> None:
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self._cached: dict[int, dict[str, int]] = {}  #: by prompt: tokens by tier
        self._has_stages = has_stages
        self._by_stage: Counter[int] = Counter()  #: tokens of the answers that have ended

    def add_prompt(self, number: int, num_tokens: int, cached: dict[str, int]) -> None:
        self.num_prompt_tokens += num_tokens
        self.note_cached(number, cached)

    def note_cached(self, number: int, cached: dict[str, int]) -> None:
        """Of a prompt, the tokens whose KV was found, by tier; in the place of what was noted before."""
        self._cached[number] = cached

    def add_output(self, number: int, output: RequestOutput) -> None:
        """Count a whole answer to a prompt."""
        self.add_prompt(number, len(output.prompt_token_ids), output.cached_tokens)
        self.num_output_tokens += sum(len(completion.token_ids) for completion in output.outputs)
        self.note_stages(output)

    def note_stages(self, output: RequestOutput) -> None:
        """Of a prompt's whole answer, which stage of the model made how many tokens."""
        for stage, num_tokens in output.stages:
            self._by_stage[stage] += num_tokens

    def note(self, scope: Scope, model: str) -> None:
        """Tell the access log."""
        note_usage(scope, model=model, prompt_tokens=self.num_prompt_tokens, completion_tokens=self.num_output_tokens)

    def to_usage(self) -> Usage:
        by_tier: Counter[str] = sum((Counter(cached) for cached in self._cached.values()), Counter())
        details = PromptTokensDetails(cached_tokens=by_tier.total())
        if by_tier.keys() - {"device"}:
            details.cached_tokens_by_tier = dict(by_tier)
        usage = Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=self.num_output_tokens,
            total_tokens=self.num_prompt_tokens + self.num_output_tokens,
            prompt_tokens_details=details,
        )
        if self._has_stages and self._by_stage:
            usage.stages = [StageTokens(stage=stage, tokens=count) for stage, count in sorted(self._by_stage.items())]
        return usage


def event_of(data: dict[str, Any]) -> bytes:
    """One event. JSON keeps to ASCII: some clients break lines at characters that SSE does not."""
    encoded = to_json(data)  # a fifth of the time that `json` takes, and nearly every chunk is ASCII
    if not encoded.isascii():
        encoded = json.dumps(data, separators=(",", ":")).encode()
    return b"data: " + encoded + b"\n\n"


def named_event(name: str, data: dict[str, Any]) -> bytes:
    """As `event_of`, with its name before it."""
    return f"event: {name}\n".encode() + event_of(data)


def comment(text: str) -> bytes:
    return f": {text}\n\n".encode()


class EventWriter(ABC):
    """From the events of one answer to the bytes of its stream, in the form of some API.

    What is counted is the same for all; a form says what begins, what a piece of text is, and what ends.

    Args:
        usage: counts its tokens.
    """

    def __init__(self, usage: UsageCount) -> None:
        self.usage = usage  #: so far

    def encode(self, events: Sequence[tuple[int, Event]]) -> bytes:
        """The bytes of some events, each with the number of its prompt."""
        return b"".join([self.encode_one(number, event) for number, event in events])

    def encode_one(self, number: int, event: Event) -> bytes:
        """As `encode`."""
        match event:
            case Progress():
                return b"".join([self._encode_delta(number, delta) for delta in event.deltas])
            case Started():
                self.usage.add_prompt(number, len(event.prompt_token_ids), event.cached_tokens)
                return self._begin(number, event)
            case Preempted():
                return comment("preempted")
            case Resumed():
                return comment("resumed")
            case Finished():
                self.usage.note_cached(number, event.output.cached_tokens)
                self.usage.note_stages(event.output)
        return b""

    @abstractmethod
    def _begin(self, number: int, event: Started) -> bytes:
        """The bytes before the first text of a prompt's answer."""

    @abstractmethod
    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        """The bytes of some tokens, which count from here on."""

    @abstractmethod
    def close(self) -> bytes:
        """The bytes after the last answer's end."""

    @abstractmethod
    def fail(self, error: ApiError) -> bytes:
        """The last bytes of a stream that failed after it had begun."""


class Chunks(EventWriter):
    """The stream of chat and of completions: an event a chunk, the last one [DONE]."""

    def __init__(self, builder: ResponseBuilder[Any]) -> None:
        super().__init__(UsageCount(has_stages=builder.generation.model.async_engine.num_stages > 1))
        self._builder = builder
        self._head = builder.generation.head(builder.chunk_kind)
        self._has_usage = builder.body.wants_usage
        self._has_running_usage = builder.body.wants_running_usage
        # before an answer's end, its chunks show nothing but text
        self._is_only_text = builder.is_only_text and not self._has_running_usage
        self._around_text: dict[tuple[int, int], tuple[str, str]] = {}

    def _begin(self, number: int, event: Started) -> bytes:
        opening = self._builder.opening(number, event)
        if number == 0 and opening:
            about = self._builder.generation.about
            opening[0] |= {name: field.model_dump(exclude_unset=True) for name, field in about.items()}
        return b"".join([event_of(self._chunk(**parts)) for parts in opening])

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        if self._is_only_text and delta.finish_reason is None:
            return self._encode_text(number, delta.index, delta.text) if delta.text else b""
        return b"".join([self._encode_choice(choice) for choice in self._builder.choices(number, delta)])

    def _encode_choice(self, choice: dict[str, Any]) -> bytes:
        return event_of(self._chunk(choices=[choice]))

    def _encode_text(self, number: int, index: int, text: str) -> bytes:
        """The same as `_encode_choice` for a bare text, written into a chunk that was encoded once."""
        around = self._around_text.get((number, index))
        if around is None:
            pattern = self._encode_choice(self._builder.choice(number, Delta(index, _TEXT, []))).decode()
            before, _, after = pattern.partition(encode_basestring_ascii(_TEXT))
            around = self._around_text[number, index] = before, after
        return (around[0] + encode_basestring_ascii(text) + around[1]).encode()

    def close(self) -> bytes:
        if not self._has_usage:
            return DONE
        return event_of({**self._head, "choices": [], "usage": self._usage()}) + DONE

    def fail(self, error: ApiError) -> bytes:
        return event_of(error_body(error)) + DONE

    def _usage(self) -> dict[str, Any]:
        return self.usage.to_usage().model_dump(exclude_unset=True)

    def _chunk(self, **parts: Any) -> dict[str, Any]:
        if self._has_usage:
            parts["usage"] = self._usage() if self._has_running_usage else None
        return {**self._head, **parts}


class StreamedAnswer(Response):
    """A streamed answer. A refusal before it begins is an ordinary error, a later failure an event.

    Once it has begun, progress goes straight to the connection, without a turn of this answer's task, while the
    connection takes more (`BodyWriter`).
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, writer: EventWriter, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._generation = generation
        self._connection: BodyWriter | None = None  #: once it has begun
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._has_news = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(receive, self._answer(scope, receive, send))
        except ClientDisconnected:
            logger.debug("%s: the client left its stream", self._generation.request_id)
        finally:
            self._writer.usage.note(scope, self._generation.model.name)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._generation.events(pass_on=self._pass_on)) as events:
            first = asyncio.ensure_future(anext(events))
            try:
                await asyncio.wait({first}, timeout=min(_REFUSED_WITHIN_S, self._keep_alive_s))
                if first.done() and (error := first.exception()) is not None:
                    if not isinstance(error, ApiError):
                        raise error
                    await error_response(error)(scope, receive, send)
                    return
                self.headers.update(self._generation.stage_headers)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                self._connection = scope.get("extensions", {}).get(BODY_WRITER)
                await self._stream(first, events, send)
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    async def _stream(
        self,
        first: asyncio.Future[list[tuple[int, Event]]],
        batches: AsyncGenerator[list[tuple[int, Event]], None],
        send: Send,
    ) -> None:
        comments = asyncio.create_task(self._keep_alive(send))
        try:
            try:
                await self._send(send, self._writer.encode(await first))
                async for events in batches:
                    await self._send(send, self._writer.encode(events))
                end = self._writer.close()
            except ApiError as error:
                end = self._writer.fail(error)
            except Exception:
                logger.exception("%s: the stream failed", self._generation.request_id)
                end = self._writer.fail(ApiError(500, "the server failed; its log says why"))
            comments.cancel()
            await send({"type": "http.response.body", "body": end, "more_body": False})
        finally:
            comments.cancel()
            await asyncio.gather(comments, return_exceptions=True)

    def _pass_on(self, number: int, event: Event) -> bool:
        if self._connection is None or type(event) is not Progress or not self._connection.is_free:
            return False
        if data := self._writer.encode_one(number, event):
            self._has_news = True
            self._connection.write(data)
        return True

    async def _send(self, send: Send, data: bytes) -> None:
        if data:
            self._has_news = True
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            if not self._has_news:
                await send({"type": "http.response.body", "body": comment("keep-alive"), "more_body": True})
            self._has_news = False
