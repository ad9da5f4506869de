"""POST /v1/chat/completions and /v1/completions: find the model, check and encode the body, send the answer."""

from __future__ import annotations

import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from starlette.requests import Request
from starlette.responses import Response

from quire.async_engine.messages import ModelState, QueueFull
from quire.prompt import Prompt
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.server.bodies.fields import Reply
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.bodies.retrieval import Passages, RetrievedPassages, Retriever
from quire.server.errors import invalid
from quire.server.generation.generation import (
    GenerationJob,
    as_api_error,
    send_answer,
    turn_of,
    wait_until_known,
    wait_until_ready,
)
from quire.server.history.outline import ChatOutline
from quire.server.history.recorder import record_prompt
from quire.server.history.store import RequestHistory
from quire.server.http.middleware import domains_of, key_id_of, report_usage
from quire.server.http.protocol import run_while_connected
from quire.server.http.routes import Routes
from quire.server.openai.chunks import B, ChatWriter, ChunkWriter, CompletionWriter
from quire.server.openai.openapi import streamed
from quire.server.openai.prompts import (
    encode_messages,
    encode_prediction,
    encode_question,
    encode_texts,
    fit,
    limit_logprobs,
    may_think,
    own_template,
    tokenizer_of,
)
from quire.server.openai.schema import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    Completion,
    CompletionRequest,
    GenerationRequest,
    StreamOptions,
)
from quire.server.openai.tool_calls import (
    allow_calls,
    check_tools,
    choose_parser,
    forced_schema,
    has_strict_tools,
    has_tools,
    is_forced,
    reason_first,
)
from quire.server.registry import ModelChooser, ServedModel
from quire.server.settings import ServerSettings
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.families import reasoning_markers, tool_parser
from quire.server.tools.parser import ToolParser

if TYPE_CHECKING:
    from quire.server.tracing import RequestTrace, Tracing

#: Sampling fields that beam search uses. It draws no random numbers, so any seed is valid.
_BEAM_SEARCH_FIELDS = {"n", "max_tokens", "ignore_eos", "skip_special_tokens", "seed"}
#: Fields that would cut retrieved passages off, or repeat them.
_NOT_WITH_RETRIEVAL = ("truncate_prompt_tokens", "echo")


class GenerationEndpoint(ABC, Generic[B]):
    """Serves bodies of type B: chat or completions."""

    path: ClassVar[str]
    name: ClassVar[str]  #: operation id in OpenAPI
    summary: ClassVar[str]
    operation: ClassVar[str]  #: name in traces
    body: ClassVar[type[GenerationRequest]]
    whole: ClassVar[type[Reply]]  #: schema of a whole answer
    chunk: ClassVar[type[Reply]]  #: schema of a chunk
    id_prefix: ClassVar[str]  #: of answer ids
    prompt_field: ClassVar[str]  #: field with the prompts
    writer: ClassVar[type[ChunkWriter[Any]]]

    def __init__(
        self,
        models: ModelChooser,
        settings: ServerSettings,
        retriever: Retriever,
        history: RequestHistory,
        tracing: Tracing | None = None,
    ) -> None:
        self.models = models
        self.settings = settings
        self.retriever = retriever
        self.history = history
        self.tracing = tracing

    def routes(self) -> Routes:
        async def create(request: Request, body: Any) -> Response:
            return await self.answer(request, body)

        create.__annotations__["body"] = self.body
        routes = Routes("generate")
        responses = {**ERROR_RESPONSES, 200: streamed(self.chunk)}
        about: dict[str, Any] = {"name": self.name, "summary": self.summary, "responses": responses}
        routes.post(self.path, response_model=self.whole, **about)(create)
        return routes

    async def answer(self, request: Request, body: B) -> Response:
        """Return the model's answer, whole or as a stream. Raises like `send_answer`."""
        job = await self.prepare(request, body)
        if body.stream and self.settings.enable_force_include_usage:
            body.stream_options = StreamOptions(include_usage=True, continuous_usage_stats=True)
        if body.return_tokens_as_token_ids is None:
            body.return_tokens_as_token_ids = self.settings.return_tokens_as_token_ids
        writer = self.writer(job, body)
        keep_alive_s = self.settings.keep_alive_s
        return await send_answer(request, job, writer, is_streamed=bool(body.stream), keep_alive_s=keep_alive_s)

    async def prepare(self, request: Request, body: B, *, answer_id: str | None = None) -> GenerationJob:
        """Check a body, wait for its model and encode its prompts. The default of `answer_id` is the body's
        `request_id` after this endpoint's prefix. Raises ApiError if the body cannot be served; ClientDisconnected."""
        key_id = key_id_of(request.scope)
        about: dict[str, Reply] = {}
        trace = None if self.tracing is None else self.tracing.begin(request.headers, self.operation)
        retrieved = None if body.retrieval is None else await self._retrieve(key_id, body, trace)
        model, min_stage = self.models.named(body.model, body.slo), body.min_stage or 1
        if model is None:
            num_characters = self._num_characters(body) + (retrieved.num_characters if retrieved is not None else 0)
            model, stage, about["routing"] = await self.models.choose(
                self._question(body), body.slo, num_characters=num_characters, key_id=key_id
            )
            min_stage = max(min_stage, stage)
        report_usage(request.scope, model=model.name)
        _check_streaming(body)
        if model.async_engine.state is not ModelState.READY:
            await wait_until_ready(model, request.receive)
            if trace is not None:
                trace.lap("load")
        params = self._sampling_params(body, model)
        if params.structured_outputs is not None:
            await _check_grammar(body, params.structured_outputs, model, request, key_id)
        engine = model.async_engine.engine
        domains = domains_of(key_id, self.settings, body.cache_salt)
        if retrieved is None:
            prompts = [replace(prompt, domains=domains) for prompt in await self._encode(body, model, key_id)]
        else:
            encode = partial(self._encode_one, body, model, key_id)
            prompt, about["retrieval"] = await retrieved.join(encode, engine.max_model_len, params.max_tokens)
            prompts = [retrieved.share(prompt, domains, body.cache_salt)]
        prompts = fit(prompts, model, body, max_tokens=params.max_tokens, param=self.prompt_field)
        params = limit_logprobs(prompts, params, model, self.settings, is_stream=bool(body.stream))
        if body.prediction is not None:
            given, lead = body.prediction.text, prompts[0].answer_lead
            prediction = await model.async_engine.in_thread(key_id, encode_prediction, model, given, lead)
            prompts = [replace(prompt, prediction=prediction) for prompt in prompts]
        priority, owner = turn_of(key_id, body.priority or 0, self.settings, request.headers)
        form = self._form(body, model, prompts)
        if form is not None:
            prompts = [replace(prompt, shown_specials=form.specials) for prompt in prompts]
            params = reason_first(params, form)
        is_cut = body.truncate_prompt_tokens is not None and prompts[0].text is None
        record = partial(record_prompt, self.history, key_id, partial(self._outline, body, model, is_cut=is_cut))
        return GenerationJob(
            model,
            prompts,
            params,
            request_id=answer_id or f"{self.id_prefix}-{body.request_id or secrets.token_hex(12)}",
            created=int(time.time()),
            priority=priority,
            owner=owner,
            beam=_beam_search(body, params, model) if body.use_beam_search else None,
            min_stage=min_stage,
            form=form,
            about=about,
            record=record if self.settings.max_stored_requests else None,
            shows_records=request.headers.get("x-quire-why") == "1",
            trace=trace,
        )

    @abstractmethod
    def _own_sampling(self, body: B) -> dict[str, Any]:
        """Return the sampling parameters that this endpoint reads in its own way. Raises ApiError for fields that
        exclude each other."""

    @abstractmethod
    def _question(self, body: B) -> str | None:
        """Return the text for retrieval and routing; None for token ids or several texts."""

    @abstractmethod
    def _num_characters(self, body: B) -> int:
        """Return the approximate length of the body's text."""

    @abstractmethod
    async def _encode(self, body: B, model: ServedModel, key_id: str, passages: Passages | None = None) -> list[Prompt]:
        """Encode the prompts, without a limit of length; `passages` stand in front of the only prompt. Raises ApiError
        if the model cannot read them."""

    def _form(self, body: B, model: ServedModel, prompts: Sequence[Prompt]) -> AnswerForm | None:
        """Return how to parse the answers; None for plain text."""
        return None

    def _outline(self, body: B, model: ServedModel, *, is_cut: bool) -> ChatOutline | None:
        """Return the outline of a conversation, whose prompt may have been cut."""
        return None

    async def _encode_one(self, body: B, model: ServedModel, key_id: str, passages: Passages | None) -> Prompt:
        (prompt,) = await self._encode(body, model, key_id, passages)
        return prompt

    async def _retrieve(self, key_id: str, body: B, trace: RequestTrace | None) -> RetrievedPassages:
        assert body.retrieval is not None
        for name in _NOT_WITH_RETRIEVAL:
            if getattr(body, name, None):
                raise invalid(f"{name} does not go with retrieval; leave it out", name)
        retrieved = await self.retriever.search(key_id, body.retrieval, self._question(body))
        if trace is not None:
            trace.lap("retrieval")
        return retrieved

    def _sampling_params(self, body: B, model: ServedModel) -> SamplingParams:
        """Merge the model's defaults, the body's fields and the endpoint's own reading of them."""
        engine = model.async_engine.engine
        if body.length_penalty not in (None, 1) and not body.use_beam_search:
            raise invalid("length_penalty goes with use_beam_search=true", "length_penalty")
        try:
            given = {**body.given_sampling(), **self._own_sampling(body)}
            self._check_logprobs(body, engine.vocab_size)
            params: SamplingParams = engine.default_sampling_params(**given)
            params.check_vocabulary(engine.vocab_size)
        except ValueError as error:
            raise as_api_error(error) from error
        return params

    def _check_logprobs(self, body: B, vocab_size: int) -> None:
        """Reject requests for more log-probabilities a token than the server gives."""
        most = self.settings.max_logprobs
        for name in ("logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids"):
            given = getattr(body, name, None)
            if given is None or isinstance(given, bool):  # chat's logprobs is a flag
                continue
            asked = len(given) if isinstance(given, list) else vocab_size if given == -1 else given
            if asked > most >= 0:
                raise invalid(
                    f"{name} asks for {asked} log-probabilities a token, and this server gives {most} at most; ask for "
                    "fewer, or have it run with another --max-logprobs",
                    name,
                )


def _beam_search(body: GenerationRequest, params: SamplingParams, model: ServedModel) -> BeamSearchParams:
    """Return the parameters of a beam search. Sampling fields that it would ignore are rejected."""
    plain = SamplingParams()
    for name in body.given_sampling().keys() | {"logprobs"}:
        value = getattr(params, name)
        is_neutral = value in (getattr(plain, name), {}) or (name == "temperature" and value == 0)
        if name not in _BEAM_SEARCH_FIELDS and not is_neutral:
            raise invalid(f"{name}={getattr(body, name)!r:.60} does not go with use_beam_search; leave it out", name)
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
    body: GenerationRequest, wanted: StructuredOutputsParams, model: ServedModel, request: Request, key_id: str
) -> None:
    """Reject a grammar that cannot be served, by the name of its field."""
    try:
        await run_while_connected(request.receive, model.async_engine.check_grammar(wanted, owner=key_id))
    except QueueFull as error:
        raise as_api_error(error) from error
    except ValueError as error:
        structure = body.given_structure()
        is_call = isinstance(body, ChatCompletionRequest) and is_forced(body)
        name = "tools" if structure is None or is_call else structure[0]
        raise invalid(f"{name} cannot be served: {error}", name) from error


def _check_streaming(body: GenerationRequest) -> None:
    """Reject fields that do not go with `stream`, or only with it."""
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs are not streamed; leave out stream or prompt_logprobs", "prompt_logprobs")
    if body.stream and body.use_beam_search:
        raise invalid("use_beam_search is not streamed; leave out stream or use_beam_search", "use_beam_search")
    if not body.stream and (body.wants_usage or body.wants_running_usage):
        raise invalid("stream_options go with stream=true; a whole answer has its usage", "stream_options")


_TAIL_TOKENS = 16  # of the prompt: enough for a marker and blanks around it


class ChatEndpoint(GenerationEndpoint[ChatCompletionRequest]):
    path, name, summary = "/v1/chat/completions", "create_chat_completion", "Answer a conversation"
    operation = "chat"
    body, whole, chunk = ChatCompletionRequest, ChatCompletion, ChatCompletionChunk
    id_prefix, prompt_field, writer = "chatcmpl", "messages", ChatWriter

    def _own_sampling(self, body: ChatCompletionRequest) -> dict[str, Any]:
        limits = {body.max_completion_tokens, body.max_tokens} - {None}
        if len(limits) > 1:
            raise invalid(
                f"max_tokens={body.max_tokens} and max_completion_tokens={body.max_completion_tokens} are two names of "
                "one limit; give one of them",
                "max_tokens",
            )
        for name in ("top_logprobs", "logprob_token_ids"):
            if getattr(body, name) is not None and not body.logprobs:
                raise invalid(f"{name} goes with logprobs=true", name)
        check_tools(body)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        own: dict[str, Any] = {"max_tokens": next(iter(limits), None), "logprobs": logprobs}
        if is_forced(body):
            own["structured_outputs"] = StructuredOutputsParams(json=forced_schema(body))  # type: ignore[arg-type]
        return own

    def _sampling_params(self, body: ChatCompletionRequest, model: ServedModel) -> SamplingParams:
        params = super()._sampling_params(body, model)
        if params.structured_outputs is None and not has_strict_tools(body):
            return params
        reasoning = reasoning_markers(self.settings.reasoning_parser, self._template(body, model))
        return allow_calls(params, body, self._call_parser(body, model), reasoning)

    async def count_tokens(self, request: Request, body: ChatCompletionRequest) -> int:
        """Return the length of a conversation's prompt, without running it."""
        model = self.models.registry.get(body.model)
        await wait_until_known(model, request.receive)
        check_tools(body)
        (prompt,) = await self._encode(body, model, key_id_of(request.scope))
        return len(prompt.token_ids)

    def _question(self, body: ChatCompletionRequest) -> str | None:
        return next((message.text for message in reversed(body.messages) if message.role == "user"), "")

    def _num_characters(self, body: ChatCompletionRequest) -> int:
        return sum(len(message.text) for message in body.messages)

    async def _encode(
        self, body: ChatCompletionRequest, model: ServedModel, key_id: str, passages: Passages | None = None
    ) -> list[Prompt]:
        prompt = await model.async_engine.in_thread(
            key_id,
            encode_messages,
            model,
            body.messages,
            body,
            trusts_template=self.settings.trust_request_chat_template,
            is_truncated=body.truncate_prompt_tokens is not None,
            passages=passages,
            shows_tools=has_tools(body),
        )
        return [prompt]

    def _form(self, body: ChatCompletionRequest, model: ServedModel, prompts: Sequence[Prompt]) -> AnswerForm | None:
        """Return how to parse the answer; None if it is all content. Raises ApiError if the model writes calls in an
        unknown way."""
        tokenizer, template = tokenizer_of(model), self._template(body, model)
        has_grammar = is_forced(body) or body.given_structure() is not None
        tools = self._call_parser(body, model)
        markers = [*(tools.markers if tools is not None else ())]
        reasoning, is_thinking = reasoning_markers(self.settings.reasoning_parser, template), False
        if tools is None and "<|channel|>" in template:  # harmony, whose messages have headers
            tools = tool_parser(self.settings.tool_call_parser, template)
            markers += tools.markers if tools is not None else ()
        if reasoning is not None:
            markers += [reasoning.opening, reasoning.closing, *re.findall(r"<\|\w+\|?>", reasoning.opening)]
            tail = tokenizer.decode(prompts[0].token_ids[-_TAIL_TOKENS:], skip_special_tokens=False).rstrip()
            is_thinking = tail.endswith(reasoning.opening)
            if has_grammar and not is_thinking and (tail.endswith(reasoning.closing) or not may_think(body)):
                reasoning = None
        if reasoning is None and tools is None:
            return None
        return AnswerForm(
            reasoning,
            is_thinking=is_thinking,
            shows_reasoning=body.include_reasoning is not False,
            is_exact=has_grammar,
            tools=tools,
            schemas={tool.function.name: tool.function.parameters or {} for tool in body.tools or ()},
            is_parallel=body.parallel_tool_calls is not False,
            specials=tuple(sorted(tokenizer.special_ids.intersection(map(tokenizer.backend.token_to_id, markers)))),
        )

    def _outline(self, body: ChatCompletionRequest, model: ServedModel, *, is_cut: bool) -> ChatOutline:
        return ChatOutline.of(body, self._own_template(body, model), shows_tools=has_tools(body), is_cut=is_cut)

    def _call_parser(self, body: ChatCompletionRequest, model: ServedModel) -> type[ToolParser] | None:
        if not has_tools(body):
            return None
        name = self.settings.tool_call_parser
        is_explained = not tokenizer_of(model).shows_tools(self._own_template(body, model))
        return choose_parser(body, name, self._template(body, model), is_explained=is_explained)

    def _template(self, body: ChatCompletionRequest, model: ServedModel) -> str:
        return tokenizer_of(model).choose_chat_template(self._own_template(body, model), has_tools=has_tools(body))

    def _own_template(self, body: ChatCompletionRequest, model: ServedModel) -> str | None:
        return own_template(model, body, trusts_template=self.settings.trust_request_chat_template)


_MAX_TOKENS = 16  # OpenAI's default


class CompletionEndpoint(GenerationEndpoint[CompletionRequest]):
    path, name, summary = "/v1/completions", "create_completion", "Continue a text"
    operation = "text_completion"
    body, whole, chunk = CompletionRequest, Completion, Completion
    id_prefix, prompt_field, writer = "cmpl", "prompt", CompletionWriter

    def _own_sampling(self, body: CompletionRequest) -> dict[str, Any]:
        if body.best_of is not None and body.best_of != (body.n or 1):
            raise invalid(f"best_of={body.best_of} is not served; leave it out, or ask for n", "best_of")
        max_tokens = _MAX_TOKENS if body.max_tokens is None else body.max_tokens
        own: dict[str, Any] = {"max_tokens": max_tokens, "logprobs": body.logprobs}
        if body.echo and body.logprobs is not None:
            if body.logprob_token_ids:
                raise invalid("logprob_token_ids do not go with echo and logprobs", "logprob_token_ids")
            asked = (body.logprobs, body.prompt_logprobs or 0)
            own["prompt_logprobs"] = -1 if -1 in asked else max(asked)
        if max_tokens == 0:
            if not body.echo or body.stream:
                raise invalid("max_tokens=0 goes with echo, and without stream", "max_tokens")
            own["max_tokens"] = 1  # the engine makes one token at least; it is not shown
        return own

    def _question(self, body: CompletionRequest) -> str | None:
        given = body.prompts
        return given[0] if len(given) == 1 and isinstance(given[0], str) else None

    def _num_characters(self, body: CompletionRequest) -> int:
        return len(self._question(body) or "")

    async def _encode(
        self, body: CompletionRequest, model: ServedModel, key_id: str, passages: Passages | None = None
    ) -> list[Prompt]:
        given = body.prompts
        if passages is not None:
            return [await model.async_engine.in_thread(key_id, encode_question, model, given[0], passages)]
        n = body.n or 1
        if len(given) * n > self.settings.max_answers:
            raise invalid(
                f"{len(given)} prompts with n={n} are more answers than the {self.settings.max_answers} that one "
                "request may ask for; send several requests",
                "n" if n > 1 else "prompt",
            )
        if body.echo:
            tokenizer_of(model)  # raises for a model without one, which cannot show token ids as text
        has_specials, is_truncated = body.add_special_tokens is not False, body.truncate_prompt_tokens is not None
        encode = partial(encode_texts, model, given, add_special_tokens=has_specials, is_truncated=is_truncated)
        return await model.async_engine.in_thread(key_id, encode)
