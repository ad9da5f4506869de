"""The prompts of one HTTP request, run at once on an engine, with all their events in one stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from quire.async_engine.event_stream import EventStream, Pass
from quire.async_engine.messages import EngineUnavailable, Event, Finished, ModelState, RequestFailed
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.server.errors import RETRY_SOON, ApiError
from quire.server.openai.errors import as_api_error
from quire.server.registry import ServedModel


@dataclass(frozen=True)
class Generation:
    """Prompts to run with the same parameters.

    Attributes:
        params: with `beam`, only the number of answers and what is shown of them count.
        request_id: names the answer.
        created: seconds since 1970.
        beam: beam search in place of sampling.
        about: fields that an answer shows once: what was retrieved, why this model.
    """

    model: ServedModel
    prompts: Sequence[Prompt]
    params: SamplingParams
    request_id: str
    created: int
    priority: int = 0
    beam: BeamSearchParams | None = None
    system_fingerprint: str | None = None
    about: dict[str, Any] = field(default_factory=dict)

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
        """The whole answers, in the order of the prompts. Raises what `events` does."""
        finished: dict[int, RequestOutput] = {}
        async with aclosing(self.events(wants_progress=False)) as batches:
            async for events in batches:
                finished |= {number: event.output for number, event in events if isinstance(event, Finished)}
        return [finished[number] for number in range(len(self.prompts))]


def check_ready(model: ServedModel) -> None:
    """Raise `ApiError` for a model that is not ready."""
    state = model.async_engine.state
    if state is ModelState.READY:
        return
    why = {
        ModelState.LOADING: "is loading; try again soon, GET /v1/models shows its state",
        ModelState.DRAINING: "takes no more requests: the server is shutting down",
        ModelState.FAILED: f"could not be loaded: {model.async_engine.error}",
    }[state]
    raise ApiError(503, f"the model {model.name!r} {why}", "model", f"model_{state}", RETRY_SOON)


def _check(output: RequestOutput) -> None:
    if output.error is not None:
        raise RequestFailed(output.error)
    if any(completion.finish_reason == "abort" for completion in output.outputs):
        raise EngineUnavailable("the server is shutting down, and could not finish the request")
