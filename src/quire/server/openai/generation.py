"""The prompts of one HTTP request, run at once on an engine, with all their events in one stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from starlette.types import Receive

from quire.async_engine.event_stream import EventStream, Pass
from quire.async_engine.messages import (
    EngineUnavailable,
    Event,
    Finished,
    ModelState,
    QueueFull,
    RequestFailed,
    Started,
)
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.server.errors import RETRY_SOON, ApiError
from quire.server.http.connection import run_while_connected
from quire.server.openai.errors import as_api_error
from quire.server.registry import ServedModel
from quire.server.tools.answer_form import AnswerForm


@dataclass(frozen=True)
class Generation:
    """Prompts to run with the same parameters.

    Attributes:
        params: with `beam`, only the number of answers and what is shown of them count.
        request_id: names the answer.
        created: seconds since 1970.
        beam: beam search in place of sampling.
        min_stage: of the model, before which it does not begin.
        form: how to tell reasoning, content and calls apart in the answers; None where they are all content.
        about: fields that an answer shows once: what was retrieved, why this model.
        begun: by prompt, the stage of the model on which it began, once it has.
    """

    model: ServedModel
    prompts: Sequence[Prompt]
    params: SamplingParams
    request_id: str
    created: int
    priority: int = 0
    beam: BeamSearchParams | None = None
    min_stage: int = 1
    system_fingerprint: str | None = None
    form: AnswerForm | None = None
    about: dict[str, Any] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)

    @property
    def stage_headers(self) -> dict[str, str]:
        """The header that says on which stage the answer began; none where the model has one stage, or while the
        answer waits."""
        if self.model.async_engine.num_stages == 1 or not self.begun:
            return {}
        return {"X-Quire-Stage": str(min(self.begun.values()))}

    def head(self, kind: str) -> dict[str, Any]:
        """What an answer begins with, and every chunk of a streamed one."""
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": self.system_fingerprint,
        }

    async def events(
        self, *, wants_progress: bool = True, pass_on: Pass | None = None
    ) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """The events since the last turn, each with the number of its prompt. Closing the iterator ends the prompts
        that still run.

        Args:
            wants_progress: False gives only each prompt's start and end.
            pass_on: is offered events while the reader waits (`EventStream`).

        Raises:
            ApiError: a prompt cannot be served, or failed; the others are ended.
        """
        engine = self.model.async_engine
        stream = EventStream(pass_on)
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
                events = await stream.take()
                self.begun.update({number: event.stage for number, event in events if isinstance(event, Started)})
                yield events
                for _, event in events:
                    if isinstance(event, Finished):
                        _check(event.output)
                        num_open -= 1
        except (EngineUnavailable, RequestFailed, ValueError) as error:
            raise as_api_error(error) from error
        finally:
            engine.leave(stream)

    async def outputs(self) -> list[RequestOutput]:
        """The whole answers, in the order of the prompts. Raises what `events` does."""
        finished: dict[int, RequestOutput] = {}
        async with aclosing(self.events(wants_progress=False)) as batches:
            async for events in batches:
                finished |= {number: event.output for number, event in events if isinstance(event, Finished)}
        return [finished[number] for number in range(len(self.prompts))]


async def wait_until_ready(model: ServedModel, receive: Receive) -> None:
    """Wait while the model is loaded: at the start, again after it was lost, or since it was unloaded.

    Args:
        receive: of the request that waits, whose body has been read.

    Raises:
        ApiError: too many wait, it takes too long, or the model cannot be asked.
        ClientDisconnected: the client waits no longer.
    """
    if model.async_engine.state is ModelState.READY:
        return
    try:
        await run_while_connected(receive, model.async_engine.wait_open())
    except QueueFull as error:
        raise as_api_error(error) from error
    except EngineUnavailable as error:
        raise _unavailable(model) from error


async def wait_until_known(model: ServedModel, receive: Receive) -> None:
    """As `wait_until_ready`, for whoever asks for tokenizer and limits alone: an unloaded model stays so."""
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


def _check(output: RequestOutput) -> None:
    if output.error is not None:
        raise RequestFailed(output.error)
    if any(completion.finish_reason == "abort" for completion in output.outputs):
        raise EngineUnavailable("the server is shutting down, and could not finish the request")
