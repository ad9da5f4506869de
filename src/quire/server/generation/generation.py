"""Generation: run the prompts of one HTTP request on an engine, as one stream of events or API errors."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from math import ceil
from typing import Any

from starlette.types import Receive

from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import (
    EngineLost,
    EngineUnavailable,
    Event,
    Finished,
    ModelState,
    QueueFull,
    RequestFailed,
    Started,
)
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.server.errors import RETRY_SOON, ApiError, invalid
from quire.server.http.protocol import run_while_connected
from quire.server.registry import ServedModel
from quire.server.tools.answer_reader import AnswerForm

_RENAMED = {"beam_width": "n"}  # the engine's name -> the field of a body
_FIELDS = {"prompt", "length_penalty", "min_stage", "priority", "response_format", "guided_whitespace_pattern"}
_FIELDS |= {f"guided_{name}" for name in ("json", "regex", "choice", "grammar")}
_FIELDS |= {field.name for field in fields(SamplingParams)}
_QUEUE_RETRY_AFTER = {"Retry-After": "5"}  # a full queue takes longer to move


def as_api_error(error: Exception) -> ApiError:
    """Return the API error for an error of the engine."""
    match error:
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", headers=_QUEUE_RETRY_AFTER)
        case EngineUnavailable():
            return ApiError(503, str(error), code="engine_unavailable", headers=RETRY_SOON)
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
    """Prompts to run with the same parameters.

    Attributes:
        params: with `beam`, only the number of answers and the shown fields count.
        request_id: id of the answer.
        created: seconds since 1970.
        beam: beam search in place of sampling.
        min_stage: stage of the model to wait for.
        form: how to separate reasoning, content and calls; None for plain content.
        about: fields that an answer shows once: retrieved passages, routing.
        started_stages: prompt number -> stage of the model on which it started.
    """

    model: ServedModel
    prompts: Sequence[Prompt]
    params: SamplingParams
    request_id: str
    created: int
    priority: int = 0
    beam: BeamSearchParams | None = None
    min_stage: int = 1
    form: AnswerForm | None = None
    about: dict[str, Any] = field(default_factory=dict)
    started_stages: dict[int, int] = field(default_factory=dict)

    @property
    def stage_headers(self) -> dict[str, str]:
        """X-Quire-Stage, for a model with several stages once the answer has started."""
        if self.model.async_engine.num_stages == 1 or not self.started_stages:
            return {}
        return {"X-Quire-Stage": str(min(self.started_stages.values()))}

    async def events(self, *, wants_progress: bool = True) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """Run the prompts and yield batches of events, each with the number of its prompt.

        Closing the iterator aborts running prompts.

        Args:
            wants_progress: False yields only each prompt's start and end.

        Raises:
            ApiError: a prompt cannot be served, or failed; the others are aborted.
        """
        engine = self.model.async_engine
        stream = EventStream()
        num_open = len(self.prompts)
        # Clients may name two requests alike; the engine may not.
        name = f"{self.request_id}-{secrets.token_hex(4)}"
        try:
            for number, prompt in enumerate(self.prompts):
                await engine.submit(
                    stream,
                    prompt,
                    self.beam or self.params,
                    request_id=name if len(self.prompts) == 1 else f"{name}-{number}",
                    number=number,
                    priority=self.priority,
                    min_stage=self.min_stage,
                    wants_progress=wants_progress,
                )
            while num_open:
                events = await stream.read()
                for number, event in events:
                    if isinstance(event, Started):
                        self.started_stages[number] = event.stage
                yield events
                for _, event in events:
                    if isinstance(event, Finished):
                        if event.output.error is not None:
                            raise RequestFailed(event.output.error)
                        if "abort" in [completion.finish_reason for completion in event.output.outputs]:
                            raise EngineUnavailable("the server is shutting down, and could not finish the request")
                        num_open -= 1
        except (EngineUnavailable, RequestFailed, ValueError) as error:
            raise as_api_error(error) from error
        finally:
            engine.leave(stream)

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished outputs, in the order of the prompts. Raises like `events`."""
        finished: dict[int, RequestOutput] = {}
        async with aclosing(self.events(wants_progress=False)) as batches:
            async for events in batches:
                for number, event in events:
                    if isinstance(event, Finished):
                        finished[number] = event.output
        return [finished[number] for number in range(len(self.prompts))]


async def wait_until_ready(model: ServedModel, receive: Receive) -> None:
    """Wait while the model is loading or reloading.

    Args:
        receive: ASGI channel of the waiting request, after its body.

    Raises:
        ApiError: too many requests wait, the wait timed out, or the model failed.
        ClientDisconnected: the client left.
    """
    try:
        await run_while_connected(receive, model.async_engine.wait_open())
    except QueueFull as error:
        raise as_api_error(error) from error
    except EngineUnavailable as error:
        raise _unavailable(model) from error


async def wait_until_known(model: ServedModel, receive: Receive) -> None:
    """Wait for tokenizer and limits only: an unloaded model is not loaded again. Raises like `wait_until_ready`."""
    if not model.async_engine.is_known or model.async_engine.state is ModelState.DRAINING:
        await wait_until_ready(model, receive)


def _unavailable(model: ServedModel) -> ApiError:
    engine, state, headers = model.async_engine, model.async_engine.state, RETRY_SOON
    match state:
        case ModelState.DRAINING:
            why = "takes no more requests: the server is shutting down"
        case ModelState.FAILED:
            why = f"could not be loaded: {engine.error}"
        case _:
            state, why = ModelState.LOADING, "is loading; try again soon, GET /v1/models shows its state"
            if engine.load_progress is not None and engine.load_progress.seconds_left is not None:
                headers = {"Retry-After": str(max(1, ceil(engine.load_progress.seconds_left)))}
    return ApiError(503, f"the model {model.name!r} {why}", "model", f"model_{state}", headers)
