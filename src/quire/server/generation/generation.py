"""Run the prompts of one HTTP request on an engine, and send the answer: as JSON, or as server-sent events.

Each API has one writer. An idle stream sends comments, so that proxies keep it open; clients do not see them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, fields, replace
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import (
    EngineLost,
    EngineUnavailable,
    Event,
    Finished,
    ModelState,
    Preempted,
    Progress,
    QueueFull,
    RequestFailed,
    Resumed,
    Started,
)
from quire.core.request import BACKGROUND, NO_OWNER, Owner
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, Delta, Logprobs, RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.server.bodies.replies import CompletionTokensDetails, PromptTokensDetails, StageTokens, Usage
from quire.server.bodies.requests import RequestReply
from quire.server.errors import ApiError, ErrorResponse, invalid
from quire.server.http.middleware import BACKGROUND_HEADER, hold_sequences, report_usage
from quire.server.http.protocol import ClientDisconnected, run_while_connected
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from quire.server.tools.answer_reader import AnswerForm

if TYPE_CHECKING:
    from quire.server.tracing import RequestTrace

_RENAMED = {"beam_width": "n"}  # the engine's name -> the field of a body
_FIELDS = {"prompt", "length_penalty", "min_stage", "priority", "response_format", "guided_whitespace_pattern"}
_FIELDS |= {"grammar", "json_schema", *(f"guided_{name}" for name in ("json", "regex", "choice", "grammar"))}
_FIELDS |= {field.name for field in fields(SamplingParams)}
_QUEUE_RETRY_AFTER = {"Retry-After": "5"}  # a full queue takes longer to move


def as_api_error(error: Exception) -> ApiError:
    match error:
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", headers=_QUEUE_RETRY_AFTER)
        case EngineUnavailable():
            return ApiError(503, str(error), code="engine_unavailable", headers=_retry_after(error.retry_after_s))
        case RequestFailed(args=(message,)) if message == EVERY_TOKEN_IS_BANNED:
            return invalid(message, "allowed_token_ids")
        case RequestFailed(args=(message,)) if message.startswith(BROKEN_GRAMMAR):
            return invalid(message, "structured_outputs")
        case EngineLost():
            return ApiError(500, str(error), code="engine_lost")
        case RequestFailed():
            return ApiError(500, str(error), code="request_failed")
        case ValueError():
            # Messages begin with the field: `min_tokens=5 is not valid: ...`, `prompt token 70000 is not an id ...`.
            named = re.match(r"(\w+)(?:=| needs | token )", str(error))
            field = _RENAMED.get(named[1], named[1]) if named else None
            return invalid(str(error), field if field in _FIELDS else None)
    raise error


@dataclass(frozen=True)
class GenerationJob:
    """Prompts to run with the same parameters."""

    model: ServedModel
    prompts: Sequence[Prompt]
    params: SamplingParams  #: with `beam`, only the number of answers and the shown fields count
    request_id: str  #: of the answer
    created: int  #: seconds since 1970
    priority: int = 0
    owner: Owner = NO_OWNER  #: tenant whose turn the prompts take
    beam: BeamSearchParams | None = None  #: in place of sampling
    min_stage: int = 1  #: stage of the model to wait for
    form: AnswerForm | None = None  #: how to separate reasoning, content and calls; None for plain content
    about: dict[str, Any] = field(default_factory=dict)  #: fields that an answer shows once: passages, routing
    started_stages: dict[int, int] = field(default_factory=dict)  #: prompt number -> stage on which it started
    is_accepted: asyncio.Event = field(default_factory=asyncio.Event)  #: set once all prompts wait or run
    #: Records a finished prompt by its number; None to record none.
    record: Callable[[GenerationJob, int, RequestOutput], Awaitable[RequestReply]] | None = None
    records: dict[int, RequestReply] = field(default_factory=dict)  #: by number of the prompt
    shows_records: bool = False  #: `usage` has the record of the only prompt
    trace: RequestTrace | None = None  #: exports spans

    @property
    def num_sequences(self) -> int:
        return len(self.prompts) * (self.beam.beam_width if self.beam is not None else self.params.n)

    @property
    def stage_headers(self) -> dict[str, str]:
        """X-Quire-Stage, for a model with several stages once the answer has started."""
        if self.model.async_engine.num_stages == 1 or not self.started_stages:
            return {}
        return {"X-Quire-Stage": str(min(self.started_stages.values()))}

    async def events(self, *, wants_progress: bool = True) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """Run the prompts and yield batches of events, each with the number of its prompt; without `wants_progress`
        only each prompt's start and end. Closing the iterator aborts running prompts. Raises ApiError if a prompt
        cannot be served, or failed; the others are aborted."""
        engine = self.model.async_engine
        stream = EventStream()
        num_open = len(self.prompts)
        tokenizer = engine.engine.tokenizer
        token_text = tokenizer.token_text if tokenizer is not None else None
        # Clients may name two requests alike; the engine may not.
        name = f"{self.request_id}-{secrets.token_hex(4)}"
        failure: Exception | None = None
        if self.trace is not None:
            self.trace.describe(self.model.name, self.params, self.request_id, len(self.prompts))
        try:
            for number, prompt in enumerate(self.prompts):
                await engine.submit(
                    stream,
                    replace(prompt, adapter=self.model.adapter),
                    self.beam or self.params,
                    request_id=name if len(self.prompts) == 1 else f"{name}-{number}",
                    number=number,
                    priority=self.priority,
                    owner=self.owner,
                    min_stage=self.min_stage,
                    wants_progress=wants_progress,
                )
            self.is_accepted.set()
            while num_open:
                events = await stream.read()
                for number, event in events:
                    if isinstance(event, Started):
                        self.started_stages[number] = event.stage
                    elif isinstance(event, Finished):
                        await self._record(number, event.output)
                        if self.trace is not None:
                            self.trace.end(event.output)
                    for logprobs in _logprobs_of(event):
                        logprobs.text = token_text
                yield events
                for _, event in events:
                    if isinstance(event, Finished):
                        if event.output.error is not None:
                            raise RequestFailed(event.output.error)
                        if "abort" in [completion.finish_reason for completion in event.output.outputs]:
                            raise EngineUnavailable("the server is shutting down, and could not finish the request")
                        num_open -= 1
        except (EngineUnavailable, RequestFailed, ValueError) as error:
            failure = error
            raise as_api_error(error) from error
        finally:
            engine.leave(stream)
            if self.trace is not None:
                self.trace.close(failure)

    async def _record(self, number: int, output: RequestOutput) -> None:
        if self.record is None or output.error is not None or output.outputs[0].finish_reason == "abort":
            return
        try:
            self.records[number] = await self.record(self, number, output)
        except Exception:  # the answer is complete without it
            logger.exception("%s: it could not be recorded", self.request_id)

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished outputs, in the order of the prompts. Raises like `events`."""
        finished: dict[int, RequestOutput] = {}
        async with aclosing(self.events(wants_progress=False)) as batches:
            async for events in batches:
                for number, event in events:
                    if isinstance(event, Finished):
                        finished[number] = event.output
        return [finished[number] for number in range(len(self.prompts))]


def turn_of(key_id: str, priority: int, settings: ServerSettings, headers: Mapping[str, str]) -> tuple[int, Owner]:
    """Return the priority among all requests, and the owner, of a request whose client asks for `priority`."""
    if headers.get(BACKGROUND_HEADER) == "1":  # a tenant of its own, which delays none of the key's others
        return BACKGROUND, Owner(f"{key_id}/background") if settings.api_keys else NO_OWNER
    if not settings.api_keys:
        return priority, NO_OWNER
    if settings.priority_scope == "all":
        return priority, Owner(key_id)
    return 0, Owner(key_id, priority)


def _logprobs_of(event: Event) -> Iterator[Logprobs]:
    if isinstance(event, Progress):
        found = [delta.logprobs for delta in event.deltas]
    elif isinstance(event, Finished):
        found = [event.output.prompt_logprobs, *(each.logprobs for each in event.output.outputs)]  # type: ignore[list-item]
    else:
        return
    yield from (each for each in found if isinstance(each, Logprobs))


async def wait_until_ready(model: ServedModel, receive: Receive) -> None:
    """Wait while the model is loading or reloading. `receive` is the waiting request's, after its body. Raises ApiError
    if too many requests wait, the wait times out or the model failed; ClientDisconnected."""
    try:
        await run_while_connected(receive, model.async_engine.wait_open())
    except QueueFull as error:
        raise as_api_error(error) from error
    except EngineUnavailable as error:
        raise _unavailable(model, error) from error


async def wait_until_known(model: ServedModel, receive: Receive) -> None:
    """Wait for tokenizer and limits only: an unloaded model is not loaded again. Raises like `wait_until_ready`."""
    if not model.async_engine.is_known or model.async_engine.state is ModelState.DRAINING:
        await wait_until_ready(model, receive)


def _unavailable(model: ServedModel, error: EngineUnavailable) -> ApiError:
    engine, state, wait_s = model.async_engine, model.async_engine.state, error.retry_after_s
    match state:
        case ModelState.DRAINING:
            why = "takes no more requests: the server is shutting down"
        case ModelState.FAILED:
            why = f"cannot be served: {engine.error}"
            if not engine.is_given_up:
                why += f"; it is loaded again in {wait_s:.0f} s"
        case _:
            state, why = ModelState.LOADING, "is loading; try again soon, GET /v1/models shows its state"
            if engine.load_progress is not None and engine.load_progress.seconds_left is not None:
                wait_s = max(1, engine.load_progress.seconds_left)
    return ApiError(503, f"the model {model.name!r} {why}", "model", f"model_{state}", _retry_after(wait_s))


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(ceil(seconds))}


class UsageCount:
    """Token counts of one HTTP request, over all its prompts and answers; with `has_stages` by stage, too. `records`
    are shown once they are complete, if there is one prompt."""

    def __init__(self, *, has_stages: bool, records: Mapping[int, RequestReply] = MappingProxyType({})) -> None:
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.num_reasoning_tokens: int | None = None  #: None without reasoning
        self.by_stage: Counter[int] = Counter()  #: tokens of finished answers
        self.num_predicted: tuple[int, int] | None = None  #: `RequestOutput.predicted_tokens`
        self._cached: dict[int, dict[str, int]] = {}  #: prompt number -> cached tokens by tier
        self._has_stages = has_stages
        self._records = records

    def add_prompt(self, number: int, num_tokens: int, cached: dict[str, int]) -> None:
        self.num_prompt_tokens += num_tokens
        self._cached[number] = cached

    def finish_prompt(self, number: int, output: RequestOutput) -> None:
        """Count what is only known at the end: cached tokens by tier, output tokens by stage."""
        self._cached[number] = output.cached_tokens
        for stage, num_tokens in output.stages:
            self.by_stage[stage] += num_tokens
        if output.predicted_tokens is not None:
            (accepted, rejected), more = self.num_predicted or (0, 0), output.predicted_tokens
            self.num_predicted = accepted + more[0], rejected + more[1]

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
        parts: dict[str, int] = {}
        if self.num_reasoning_tokens is not None:
            parts["reasoning_tokens"] = self.num_reasoning_tokens
        if self.num_predicted is not None:
            parts["accepted_prediction_tokens"], parts["rejected_prediction_tokens"] = self.num_predicted
        if parts:
            usage.completion_tokens_details = CompletionTokensDetails(**parts)
        if self._has_stages and self.by_stage:
            usage.stages = [StageTokens(stage=stage, tokens=count) for stage, count in sorted(self.by_stage.items())]
        if self._records.keys() == self._cached.keys() == {0}:
            usage.why = self._records[0]
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
    """Writes one answer in the form of an API, and counts its tokens in `usage`."""

    def __init__(self, job: GenerationJob) -> None:
        self.job = job
        records = job.records if job.shows_records else {}
        self.usage = UsageCount(has_stages=job.model.async_engine.num_stages > 1, records=records)

    def report(self, scope: Scope) -> None:
        """Report model and token counts to the access log."""
        counts = {"prompt_tokens": self.usage.num_prompt_tokens, "completion_tokens": self.usage.num_output_tokens}
        report_usage(scope, model=self.job.model.name, **counts)

    def num_stored_tokens(self, num_cached: int) -> int:
        """Return the number of computed prompt tokens whose KV later requests find: those in full blocks."""
        limits = self.job.model.async_engine.limits
        num_full = self.usage.num_prompt_tokens // limits.block_size * limits.block_size
        return max(0, num_full - num_cached) if limits.enable_prefix_caching else 0

    @abstractmethod
    def whole(self, outputs: list[RequestOutput]) -> bytes:
        """Return the JSON body of the finished answer; `usage` has counted the outputs."""

    def pieces(self, whole: bytes) -> Iterator[bytes]:
        """Return the body in pieces. Each takes some milliseconds."""
        yield whole

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
MANY_LOGPROBS = 4096  #: a larger answer is encoded in threads, in pieces of this many
_FEW_LOGPROBS = 64  # in one event of a stream; more are encoded in a thread
_PIECE_BYTES = 1 << 16  # of a stream, encoded at once
_ENCODERS = ThreadPoolExecutor(2, "encode")  # each more would delay the event loop by another turn of the interpreter


async def send_answer(
    request: Request, job: GenerationJob, writer: AnswerWriter, *, is_streamed: bool, keep_alive_s: float
) -> Response:
    """Run the prompts and return the answer; a stream sends a comment after `keep_alive_s` without events. A client
    that leaves aborts them. Raises ApiError if a prompt cannot be served, or failed; ClientDisconnected."""
    hold_sequences(request.scope, job.num_sequences)
    if is_streamed:
        return StreamedAnswer(job, writer, keep_alive_s)
    outputs = await run_while_connected(request.receive, job.outputs())
    for number, output in enumerate(outputs):
        writer.usage.add_output(number, output)
    logprobs = [each for output in outputs for each in _logprobs_of(Finished(output))]
    if sum(each.num_entries for each in logprobs) > MANY_LOGPROBS:
        whole = await asyncio.to_thread(writer.whole, outputs)
        writer.report(request.scope)
        return StreamingResponse(writer.pieces(whole), media_type="application/json", headers=job.stage_headers)
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
                    await ErrorResponse(error)(scope, receive, send)
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
        data = b""
        for position, (number, event) in enumerate(batch, start=1):
            if sum(each.num_entries for each in _logprobs_of(event)) > _FEW_LOGPROBS:
                loop = asyncio.get_running_loop()
                data += await loop.run_in_executor(_ENCODERS, self._writer.encode, number, event)
            else:
                data += self._writer.encode(number, event)
            if data and (len(data) > _PIECE_BYTES or position == len(batch)):
                self._has_news = True
                await send({"type": "http.response.body", "body": data, "more_body": True})
                data = b""
                if position < len(batch):
                    await asyncio.sleep(0)  # other clients' turn

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            if not self._has_news:
                await send({"type": "http.response.body", "body": comment("keep-alive"), "more_body": True})
            self._has_news = False
