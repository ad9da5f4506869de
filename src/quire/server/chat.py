"""POST /v1/chat/completions: messages in, the assistant's next one out, whole or as a stream.

Knows what chat looks like; how prompts are made and run is elsewhere.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from quire.async_engine import Delta, Started
from quire.outputs import CompletionOutput
from quire.sampling_params import SamplingParams
from quire.server.body import JsonRoute
from quire.server.choices import Choices
from quire.server.endpoint import Endpoint, json_reply
from quire.server.errors import invalid
from quire.server.generation import Generation
from quire.server.logprobs import chat_logprobs, prompt_logprobs
from quire.server.openapi import streamed
from quire.server.prompts import encode_messages, fit
from quire.server.protocol import ERROR_RESPONSES
from quire.server.protocol_chat import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from quire.server.registry import ServedModel
from quire.server.sampling import sampling_params
from quire.server.streaming import Chunks, StreamedAnswer


def chat_routes(endpoint: Endpoint) -> APIRouter:
    """The route, over the models of `endpoint`."""
    router = APIRouter(route_class=JsonRoute, tags=["generate"])

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses={**ERROR_RESPONSES, 200: streamed(ChatCompletionChunk)},
        summary="Answer a conversation",
    )
    async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response:
        model = endpoint.find_model(request, body)
        params = _sampling_params(body, model)
        prompt = await encode_messages(model, body.messages, body, is_truncated=body.truncate_prompt_tokens is not None)
        prompts = fit([prompt], model, keep=body.truncate_prompt_tokens, max_tokens=params.max_tokens, param="messages")
        generation = endpoint.begin(request, body, model, prompts, params, "chatcmpl")
        if body.stream:
            return StreamedAnswer(generation, _ChatChunks(generation, body), endpoint.settings.keep_alive_s)
        return json_reply(await _whole(endpoint, request, body, generation))

    return router


def _sampling_params(body: ChatCompletionRequest, model: ServedModel) -> SamplingParams:
    limits = {body.max_completion_tokens, body.max_tokens} - {None}
    if len(limits) > 1:
        raise invalid(
            f"max_tokens={body.max_tokens} and max_completion_tokens={body.max_completion_tokens} are two names of one "
            "limit; give one of them",
            "max_tokens",
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs goes with logprobs=true", "top_logprobs")
    return sampling_params(
        body,
        model,
        max_tokens=next(iter(limits), None),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


class _ChatChoices(Choices):
    """A choice's text is in a message, or in what it gains of one."""

    def __init__(self, generation: Generation, body: ChatCompletionRequest) -> None:
        super().__init__(generation, body, has_logprobs=bool(body.logprobs))
        self._top = body.top_logprobs or 0

    def show(self, gained: CompletionOutput | Delta, **text: Any) -> dict[str, Any]:
        shown = self._frame(gained.index, gained, text)
        if self._has_logprobs and gained.logprobs is not None:
            content = chat_logprobs(self._tokenizer, gained.token_ids, gained.logprobs, self._top)
            shown["logprobs"] = {"content": content, "refusal": None}
        return shown


async def _whole(
    endpoint: Endpoint, request: Request, body: ChatCompletionRequest, generation: Generation
) -> ChatCompletion:
    (output,), usage = await endpoint.run(request, generation)
    choices = _ChatChoices(generation, body)
    more: dict[str, Any] = {}
    if body.return_token_ids:
        more["prompt_token_ids"] = output.prompt_token_ids
    if body.prompt_logprobs is not None and output.prompt_logprobs is not None:
        more["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs, output.prompt_token_ids, body.prompt_logprobs)
    return ChatCompletion(
        **generation.head("chat.completion"),
        choices=[
            choices.show(completion, message={"role": "assistant", "content": completion.text})  # type: ignore[misc]
            for completion in output.outputs
        ],
        usage=usage,
        **more,
    )


class _ChatChunks(Chunks):
    """First each choice's role, then what it gains."""

    def __init__(self, generation: Generation, body: ChatCompletionRequest) -> None:
        self._choices = _ChatChoices(generation, body)
        head = generation.head("chat.completion.chunk")
        super().__init__(head, body, is_only_text=self._choices.is_only_text)
        self._n = generation.params.n
        self._has_prompt = bool(body.return_token_ids)

    def open(self, number: int, started: Started) -> list[dict[str, Any]]:
        more = {"prompt_token_ids": started.prompt_token_ids} if self._has_prompt else {}
        opening = {"role": "assistant", "content": ""}
        return [
            self._chunk({"index": index, "delta": opening, "logprobs": None, "finish_reason": None}, **more)
            for index in range(self._n)
        ]

    def grow(self, number: int, delta: Delta) -> dict[str, Any] | None:
        if not self._choices.is_worth_a_chunk(delta):
            return None
        return self._chunk(self._choices.show(delta, delta={"content": delta.text} if delta.text else {}))
