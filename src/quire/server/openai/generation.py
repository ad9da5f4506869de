"""What one HTTP request asks of an engine: its prompts run at once, and what becomes of them comes as one stream.

Knows the engine's events and how its errors look to clients; knows nothing about the form of an answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from quire.async_engine.async_engine import (
    EngineUnavailable,
    Event,
    EventStream,
    Finished,
    ModelState,
    QueueFull,
    RequestFailed,
)
from quire.async_engine.event_stream import Pass
from quire.outputs import EVERY_TOKEN_IS_BANNED, RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.server.errors import RETRY_SOON, ApiError, invalid
from quire.server.openai.sampling import refusal
from quire.server.registry import ServedModel

_QUEUE_RETRY_AFTER = {"Retry-After": "5"}  # a full queue takes longer to move


@dataclass(frozen=True)
class Generation:
    """Prompts to run with the same parameters.

    Attributes:
        request_id: names the answer; the engine's requests are named after it.
        created: seconds since 1970.
    """

    model: ServedModel
    prompts: Sequence[Prompt]
    params: SamplingParams
    request_id: str
    created: int
    priority: int = 0

    def head(self, kind: str) -> dict[str, Any]:
        """What an answer begins with, and every chunk of a streamed one."""
        return {"id": self.request_id, "object": kind, "created": self.created, "model": self.model.name}

    async def events(
        self, *, wants_progress: bool = True, pass_on: Pass | None = None
    ) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """What happens, each time all that has happened, with the number of the prompt that it happens to. Closing it
        ends what still runs.

        Args:
            wants_progress: False gives only each prompt's start and end.
            pass_on: may take what comes while the next is waited for (`EventStream`); all but an end.

        Raises:
            ApiError: a prompt cannot be served, or failed; the others are ended.
        """
        engine = self.model.async_engine
        stream = EventStream(pass_on)
        num_open = len(self.prompts)
        try:
            for number, prompt in enumerate(self.prompts):
                await engine.submit(
                    stream,
                    prompt,
                    self.params,
                    request_id=self.request_id if len(self.prompts) == 1 else f"{self.request_id}-{number}",
                    number=number,
                    priority=self.priority,
                    wants_progress=wants_progress,
                )
            while num_open:
                events = await stream.take()
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
        """The whole answers, in the order of the prompts.

        Raises:
            ApiError: as `events`.
        """
        finished: dict[int, RequestOutput] = {}
        async with aclosing(self.events(wants_progress=False)) as batches:
            async for events in batches:
                finished |= {number: event.output for number, event in events if isinstance(event, Finished)}
        return [finished[number] for number in range(len(self.prompts))]


def check_ready(model: ServedModel) -> None:
    """Refuse what a model cannot serve now.

    Raises:
        ApiError: it is not ready.
    """
    state = model.async_engine.state
    if state is ModelState.READY:
        return
    why = {
        ModelState.LOADING: "is loading; try again soon, GET /v1/models shows its state",
        ModelState.DRAINING: "takes no more requests: the server is shutting down",
        ModelState.FAILED: f"could not be loaded: {model.async_engine.error}",
    }[state]
    raise ApiError(503, f"the model {model.name!r} {why}", "model", f"model_{state}", RETRY_SOON)


def as_api_error(error: Exception) -> ApiError:
    """An engine's error, as clients see it."""
    match error:
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", headers=_QUEUE_RETRY_AFTER)
        case EngineUnavailable():
            return ApiError(503, str(error), code="engine_unavailable", headers=RETRY_SOON)
        case RequestFailed(args=(message,)) if message == EVERY_TOKEN_IS_BANNED:
            return invalid(message, "allowed_token_ids")
        case RequestFailed():
            return ApiError(500, str(error), code="request_failed")
        case ValueError():
            return refusal(error)
    raise error


def _check(output: RequestOutput) -> None:
    if output.error is not None:
        raise RequestFailed(output.error)
    if any(completion.finish_reason == "abort" for completion in output.outputs):
        raise EngineUnavailable("the server is shutting down, and could not finish the request")
