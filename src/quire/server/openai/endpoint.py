"""A generating endpoint, from a body to its answer: find the model, check the body, run the prompts, reply."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Generic

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.server.errors import invalid
from quire.server.http.access_log import note_usage
from quire.server.http.auth import domains_of, key_id_of
from quire.server.http.body import JsonRoute
from quire.server.http.connection import run_while_connected
from quire.server.openai.errors import as_api_error
from quire.server.openai.generation import Generation, check_ready
from quire.server.openai.openapi import streamed
from quire.server.openai.prompts import fit
from quire.server.openai.response import B, ResponseBuilder
from quire.server.openai.schema import ERROR_RESPONSES, GenerationRequest, Reply, StreamOptions
from quire.server.openai.streaming import StreamedAnswer, UsageCount
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings


class Endpoint(ABC, Generic[B]):
    """One way to ask the models of a server, by bodies of the kind B."""

    path: ClassVar[str]
    name: ClassVar[str]  #: in OpenAPI
    summary: ClassVar[str]
    body: ClassVar[type[GenerationRequest]]
    whole: ClassVar[type[Reply]]  #: an answer
    chunk: ClassVar[type[Reply]]  #: of a streamed one
    id_prefix: ClassVar[str]  #: of its answers' ids
    prompt_field: ClassVar[str]  #: where a body has its prompts
    builder: ClassVar[type[ResponseBuilder[Any]]]

    def __init__(self, registry: ModelRegistry, settings: ServerSettings) -> None:
        self.registry = registry
        self.settings = settings

    def route(self) -> APIRouter:
        async def create(request: Request, body: Any) -> Response:
            return await self.answer(request, body)

        create.__annotations__["body"] = self.body  # which FastAPI reads
        router = APIRouter(route_class=JsonRoute, tags=["generate"])
        responses = {**ERROR_RESPONSES, 200: streamed(self.chunk)}
        about: dict[str, Any] = {"name": self.name, "summary": self.summary, "responses": responses}
        router.post(self.path, response_model=self.whole, **about)(create)
        return router

    async def answer(self, request: Request, body: B) -> Response:
        """The model's answer to a body, whole or as a stream. A client that goes away ends it: `ClientDisconnected`."""
        model = self.registry.get(body.model)
        note_usage(request.scope, model=model.name)
        check_ready(model)
        _check_streaming(body)
        if body.stream and self.settings.enable_force_include_usage:
            options = body.stream_options or StreamOptions()
            body = body.model_copy(update={"stream_options": options.model_copy(update={"include_usage": True})})
        params = self._sampling_params(body, model)
        prompts = fit(
            await self._encode(body, model),
            model,
            keep=body.truncate_prompt_tokens,
            max_tokens=params.max_tokens,
            param=self.prompt_field,
        )
        domains = domains_of(key_id_of(request.scope), self.settings)
        generation = Generation(
            model,
            [replace(prompt, domains=domains) for prompt in prompts],
            params,
            request_id=f"{self.id_prefix}-{secrets.token_hex(12)}",
            created=int(time.time()),
            priority=body.priority or 0,
        )
        builder = self.builder(generation, body)
        if body.stream:
            return StreamedAnswer(builder, self.settings.keep_alive_s)
        outputs = await run_while_connected(request.receive, generation.outputs())
        count = UsageCount()
        for output in outputs:
            count.add_output(output)
        count.note(request.scope, model.name)
        return json_reply(builder.whole(outputs, count.to_usage()))

    @abstractmethod
    def _own_sampling(self, body: B) -> dict[str, Any]:
        """The sampling parameters that this endpoint reads in its own way. Raises ApiError for fields that exclude
        each other."""

    @abstractmethod
    async def _encode(self, body: B, model: ServedModel) -> list[Prompt]:
        """The prompts, however long they are. Raises ApiError where the model cannot read them."""

    def _sampling_params(self, body: B, model: ServedModel) -> SamplingParams:
        """The model's recommendation, under the body's fields, under the endpoint's own reading of them."""
        given = {**body.given_sampling(), **self._own_sampling(body)}
        engine = model.async_engine.engine
        try:
            params: SamplingParams = engine.default_sampling_params(**given)
            params.check_vocabulary(engine.vocab_size)
        except ValueError as error:
            raise as_api_error(error) from error
        return params


def _check_streaming(body: GenerationRequest) -> None:
    """Refuse fields that do not go with stream, or only with it."""
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs are not streamed; leave out stream or prompt_logprobs", "prompt_logprobs")
    if not body.stream and (body.wants_usage or body.wants_running_usage):
        raise invalid("stream_options go with stream=true; a whole answer has its usage", "stream_options")


def json_reply(answer: Reply) -> Response:
    """The fields of an answer that were set, as JSON."""
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")
