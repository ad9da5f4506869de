"""A generating endpoint, from a body to its answer: find the model, check the body, run the prompts, reply."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from quire.async_engine.messages import QueueFull
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.rag.prompt_template import share
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.server.auto import AutoModel
from quire.server.bodies.fields import Reply
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.collections.retrieval import retrieve
from quire.server.collections.service import CollectionService
from quire.server.errors import invalid
from quire.server.http.access_log import note_usage
from quire.server.http.auth import domains_of, key_id_of
from quire.server.http.body import JsonRoute
from quire.server.http.connection import run_while_connected
from quire.server.openai.errors import as_api_error
from quire.server.openai.generation import Generation, wait_until_ready
from quire.server.openai.openapi import streamed
from quire.server.openai.prompts import Passages, fit
from quire.server.openai.response import B, ResponseBuilder
from quire.server.openai.schema import GenerationRequest, StreamOptions
from quire.server.openai.streaming import Chunks, StreamedAnswer, UsageCount
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from quire.server.tools.answer_form import AnswerForm

#: What beam search takes of sampling; its answers are drawn from no random numbers, so any seed is right.
_OF_BEAM_SEARCH = {"n", "max_tokens", "ignore_eos", "skip_special_tokens", "seed"}


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

    def __init__(self, auto: AutoModel, settings: ServerSettings, service: CollectionService) -> None:
        self.auto = auto
        self.settings = settings
        self.service = service

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
        generation = await self.prepare(request, body)
        if body.stream and self.settings.enable_force_include_usage:
            options = body.stream_options or StreamOptions()
            body = body.model_copy(update={"stream_options": options.model_copy(update={"include_usage": True})})
        builder = self.builder(generation, body)
        if body.stream:
            return StreamedAnswer(generation, Chunks(builder), self.settings.keep_alive_s)
        outputs, count = await whole_answer(request, generation)
        answer = json_reply(builder.whole(outputs, count.to_usage()))
        answer.headers.update(generation.stage_headers)
        return answer

    async def prepare(self, request: Request, body: B, *, answer_id: str | None = None) -> Generation:
        """What is to be run for a body; it waits for the model.

        Args:
            answer_id: names the answer; by default what the body says, behind this endpoint's prefix.

        Raises:
            ApiError: it cannot be served.
            ClientDisconnected: the client waits no longer.
        """
        question = self._question(body)
        key_id = key_id_of(request.scope)
        retrieved = await retrieve(self.service, key_id, body, question) if body.retrieval is not None else None
        num_characters = self._num_characters(body) + (retrieved.num_characters if retrieved is not None else 0)
        model, routing = await self.auto.find(
            body.model, question, body.slo, num_characters=num_characters, key_id=key_id
        )
        note_usage(request.scope, model=model.name)
        _check_streaming(body)
        await wait_until_ready(model, request.receive)
        params = self._sampling_params(body, model)
        await _check_grammar(body, params, model, request.receive, key_id)
        beam = self._beam_search(body, params, model) if body.use_beam_search else None
        about: dict[str, Reply] = {} if routing is None else {"routing": routing}
        domains = domains_of(key_id, self.settings, body.cache_salt)
        if retrieved is None:
            prompts = [replace(prompt, domains=domains) for prompt in await self._encode(body, model)]
        else:
            limit = model.async_engine.engine.max_model_len
            prompt, about["retrieval"] = await retrieved.join(partial(self._encode_one, body, model), limit, params)
            prompts = [share(prompt, retrieved.collection_id, domains, body.cache_salt)]
        prompts = fit(
            prompts,
            model,
            keep=body.truncate_prompt_tokens,
            keeps_end=body.truncation_side != "right",
            max_tokens=params.max_tokens,
            param=self.prompt_field,
        )
        form = self._form(body, model, prompts)
        if form is not None and form.specials:
            prompts = [replace(prompt, shown_specials=form.specials) for prompt in prompts]
        return Generation(
            model,
            prompts,
            params,
            request_id=answer_id or f"{self.id_prefix}-{body.request_id or secrets.token_hex(12)}",
            created=int(time.time()),
            priority=body.priority or 0,
            beam=beam,
            min_stage=body.min_stage or 1,
            system_fingerprint=model.async_engine.engine.system_fingerprint,
            form=form,
            about=about,
        )

    @abstractmethod
    def _own_sampling(self, body: B) -> dict[str, Any]:
        """The sampling parameters that this endpoint reads in its own way. Raises ApiError for fields that exclude
        each other."""

    @abstractmethod
    def _question(self, body: B) -> str | None:
        """The text by which passages are looked for and a model is chosen; None where there is not one text."""

    @abstractmethod
    def _num_characters(self, body: B) -> int:
        """Of its text, about."""

    @abstractmethod
    async def _encode(self, body: B, model: ServedModel, passages: Passages | None = None) -> list[Prompt]:
        """The prompts, however long they are. Raises ApiError where the model cannot read them.

        Args:
            passages: to put in front of the only prompt.
        """

    def _form(self, body: B, model: ServedModel, prompts: Sequence[Prompt]) -> AnswerForm | None:
        """How to read the answers; None where they are texts and nothing else."""
        return None

    async def _encode_one(self, body: B, model: ServedModel, passages: Passages | None) -> Prompt:
        (prompt,) = await self._encode(body, model, passages)
        return prompt

    def _sampling_params(self, body: B, model: ServedModel) -> SamplingParams:
        """The model's recommendation, under the body's fields, under the endpoint's own reading of them."""
        try:
            given = {**body.given_sampling(), **self._own_sampling(body)}
        except ValueError as error:
            raise as_api_error(error) from error
        engine = model.async_engine.engine
        if body.length_penalty not in (None, 1) and not body.use_beam_search:
            raise invalid("length_penalty goes with use_beam_search=true", "length_penalty")
        self._check_logprobs(body, engine.vocab_size)
        try:
            params: SamplingParams = engine.default_sampling_params(**given)
            params.check_vocabulary(engine.vocab_size)
        except ValueError as error:
            raise as_api_error(error) from error
        return params

    def _check_logprobs(self, body: B, vocab_size: int) -> None:
        """Refuse to show more log-probabilities of a token than the server gives."""
        most = self.settings.max_logprobs
        for name in ("logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids"):
            given = getattr(body, name, None)
            if given is None or isinstance(given, bool):  # chat's logprobs says only whether
                continue
            asked = len(given) if isinstance(given, list) else vocab_size if given == -1 else given
            if asked > most >= 0:
                raise invalid(
                    f"{name} asks for {asked} log-probabilities a token, and this server gives {most} at most; ask for "
                    "fewer, or have it run with another --max-logprobs",
                    name,
                )

    def _beam_search(self, body: B, params: SamplingParams, model: ServedModel) -> BeamSearchParams:
        """What a body with use_beam_search asks for; a field of sampling that would change nothing is refused."""
        plain = SamplingParams()
        for name in body.given_sampling().keys() | {"logprobs"}:
            value = getattr(params, name)
            is_neutral = value in (getattr(plain, name), {}) or (name == "temperature" and value == 0)
            if name not in _OF_BEAM_SEARCH and not is_neutral:
                raise invalid(
                    f"{name}={getattr(body, name)!r:.60} does not go with use_beam_search; leave it out", name
                )
        try:
            return BeamSearchParams(
                params.n,
                params.max_tokens or model.async_engine.engine.max_model_len,
                1.0 if body.length_penalty is None else body.length_penalty,
                ignore_eos=params.ignore_eos,
                skip_special_tokens=params.skip_special_tokens,
            )
        except ValueError as error:
            raise as_api_error(error) from error


async def _check_grammar(
    body: GenerationRequest, params: SamplingParams, model: ServedModel, receive: Receive, key_id: str
) -> None:
    """Refuse what the answer cannot be held to, by the name of the field that says so."""
    if (wanted := params.structured_outputs) is None:
        return
    try:
        await run_while_connected(receive, model.async_engine.check_grammar(wanted, owner=key_id))
    except QueueFull as error:
        raise as_api_error(error) from error
    except ValueError as error:
        structure = body.given_structure()
        name = "tools" if structure is None else structure[0]  # of forced calls, which nothing else forces
        raise invalid(f"{name} cannot be served: {error}", name) from error


def _check_streaming(body: GenerationRequest) -> None:
    """Refuse fields that do not go with stream, or only with it."""
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs are not streamed; leave out stream or prompt_logprobs", "prompt_logprobs")
    if body.stream and body.use_beam_search:
        raise invalid("use_beam_search is not streamed; leave out stream or use_beam_search", "use_beam_search")
    if not body.stream and (body.wants_usage or body.wants_running_usage):
        raise invalid("stream_options go with stream=true; a whole answer has its usage", "stream_options")


async def whole_answer(request: Request, generation: Generation) -> tuple[list[RequestOutput], UsageCount]:
    """The outputs to all prompts, once they are whole, and their tokens, which the access log is told.

    Raises:
        ApiError: a prompt cannot be served, or failed.
        ClientDisconnected: the client waits no longer.
    """
    outputs = await run_while_connected(request.receive, generation.outputs())
    count = UsageCount(has_stages=generation.model.async_engine.num_stages > 1)
    for number, output in enumerate(outputs):
        count.add_output(number, output)
    count.note(request.scope, generation.model.name)
    return outputs, count


def json_reply(answer: Reply) -> Response:
    """The fields of an answer that were set, as JSON."""
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")
