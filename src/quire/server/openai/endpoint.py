"""A generating endpoint, from a body to its answer: find the model, check what is asked, run the prompts, reply.

Knows requests, settings and engines; how a body is read and what an answer looks like is each endpoint's own.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic

from starlette.requests import Request
from starlette.responses import Response

from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.server.errors import invalid
from quire.server.http.access_log import note_usage
from quire.server.http.auth import domains_of, key_id_of
from quire.server.http.connection import run_while_connected
from quire.server.openai.generation import Generation, check_ready
from quire.server.openai.prompts import fit
from quire.server.openai.response import B, ResponseBuilder
from quire.server.openai.schema import GenerationRequest, Reply, Usage
from quire.server.openai.streaming import StreamedAnswer, UsageCount
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings


class Endpoint(ABC, Generic[B]):
    """One way to ask the models of a server, by bodies of the kind B."""

    id_prefix: ClassVar[str]  #: of its answers' ids
    prompt_field: ClassVar[str]  #: where a body has its prompts
    form: ClassVar[type[ResponseBuilder[Any]]]

    def __init__(self, registry: ModelRegistry, settings: ServerSettings) -> None:
        self.registry = registry
        self.settings = settings

    async def answer(self, request: Request, body: B) -> Response:
        """What the model makes of a body, whole or as a stream. A client that goes away ends it.

        Raises:
            ApiError: there is no such model, or it is not ready; the body asks for what cannot be done; it failed.
            ClientDisconnected: the client went away before its whole answer was there.
        """
        model = self._find_model(request, body)
        params = self._sampling_params(body, model)
        prompts = fit(
            await self._encode(body, model),
            model,
            keep=body.truncate_prompt_tokens,
            max_tokens=params.max_tokens,
            param=self.prompt_field,
        )
        generation = self._begin(request, body, model, prompts, params)
        form = self.form(generation, body)
        if body.stream:
            return StreamedAnswer(form, self.settings.keep_alive_s)
        return json_reply(form.whole(*await _run(request, generation)))

    @abstractmethod
    def _sampling_params(self, body: B, model: ServedModel) -> SamplingParams:
        """How tokens are chosen. Raises ApiError where fields exclude each other."""

    @abstractmethod
    async def _encode(self, body: B, model: ServedModel) -> list[Prompt]:
        """The prompts, however long they are. Raises ApiError where the model cannot read them."""

    def _find_model(self, request: Request, body: B) -> ServedModel:
        model = self.registry.get(body.model)
        note_usage(request.scope, model=model.name)
        check_ready(model)
        _check_streaming(body)
        return model

    def _begin(
        self, request: Request, body: B, model: ServedModel, prompts: Sequence[Prompt], params: SamplingParams
    ) -> Generation:
        """What is to run, under an id of its own."""
        domains = domains_of(key_id_of(request.scope), self.settings)
        return Generation(
            model,
            [replace(prompt, domains=domains) for prompt in prompts],
            params,
            request_id=f"{self.id_prefix}-{secrets.token_hex(12)}",
            created=int(time.time()),
            priority=body.priority or 0,
        )


async def _run(request: Request, generation: Generation) -> tuple[list[RequestOutput], Usage]:
    """The whole answers and what they cost."""
    outputs = await run_while_connected(request.receive, generation.outputs())
    count = UsageCount()
    for output in outputs:
        count.add_output(output)
    note_usage(
        request.scope,
        model=generation.model.name,
        prompt_tokens=count.num_prompt_tokens,
        completion_tokens=count.num_output_tokens,
    )
    return outputs, count.to_usage()


def _check_streaming(body: GenerationRequest) -> None:
    """Refuse fields that do not go with stream, or only with it."""
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs are not streamed; leave out stream or prompt_logprobs", "prompt_logprobs")
    if not body.stream and (body.wants_usage or body.wants_running_usage):
        raise invalid("stream_options go with stream=true; a whole answer has its usage", "stream_options")


def json_reply(answer: Reply) -> Response:
    """What was set of an answer, as JSON."""
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")
