"""POST /tokenize and /detokenize, in vLLM's form, and POST /apply-template, in llama.cpp's."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from quire.prompt import Prompt
from quire.server.bodies.replies import ERROR_RESPONSES, json_reply
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import wait_until_known
from quire.server.http.body import JsonRoute
from quire.server.openai.prompts import encode_messages, encode_texts, tokenizer_of
from quire.server.openai.schema import (
    DetokenizeReply,
    DetokenizeRequest,
    TemplateOptions,
    TemplateReply,
    TemplateRequest,
    TokenizeReply,
    TokenizeRequest,
)
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

_ALWAYS_DETOKENIZED = 2**16  # token ids, for any model


def tokenize_routes(registry: ModelRegistry, settings: ServerSettings) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=JsonRoute, tags=["tokens"], responses=ERROR_RESPONSES)
    trusts_template = settings.trust_request_chat_template

    async def find_model(request: Request, name: str | None) -> ServedModel:
        model = registry.get(name)
        await wait_until_known(model, request.receive)
        return model

    @router.post("/tokenize", response_model=TokenizeReply, summary="Convert text to token ids")
    async def tokenize(request: Request, body: TokenizeRequest) -> Response:
        model = await find_model(request, body.model)
        prompt = await asyncio.to_thread(_encode, model, body, trusts_template)
        ids, longest = list(prompt.token_ids), model.async_engine.engine.max_model_len
        answer = TokenizeReply(count=len(ids), max_model_len=longest, tokens=ids)
        if body.return_token_strs:
            answer.token_strs = list(map(tokenizer_of(model).token_text, ids))
        return json_reply(answer)

    @router.post("/detokenize", response_model=DetokenizeReply, summary="Convert token ids to text")
    async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
        model = await find_model(request, body.model)
        if len(body.tokens) > (most := max(_ALWAYS_DETOKENIZED, 4 * model.async_engine.engine.max_model_len)):
            what = f"tokens has {len(body.tokens)} ids, and at most {most} are detokenized here at once; send pieces"
            raise ApiError(400, what, "tokens", "context_length_exceeded")
        decode = partial(tokenizer_of(model).decode, body.tokens, skip_special_tokens=False)
        return json_reply(DetokenizeReply(prompt=await asyncio.to_thread(decode)))

    @router.post("/apply-template", response_model=TemplateReply, summary="Render a conversation as text")
    async def apply_template(request: Request, body: TemplateRequest) -> Response:
        model = await find_model(request, body.model)
        encode = partial(
            encode_messages, model, body.messages, body, trusts_template=trusts_template, is_truncated=False
        )
        return json_reply(TemplateReply(prompt=(await asyncio.to_thread(encode)).text or ""))

    return router


def _encode(model: ServedModel, body: TokenizeRequest, trusts_template: bool) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        raise invalid("give a prompt or messages, one of the two", "prompt")
    if body.messages is not None:
        return encode_messages(model, body.messages, body, trusts_template=trusts_template, is_truncated=True)
    if body.model_fields_set & (TemplateOptions.model_fields.keys() - {"add_special_tokens"}):
        raise invalid("the options of chat templates go with messages", "messages")
    assert body.prompt is not None
    add_special_tokens = body.add_special_tokens is not False
    (prompt,) = encode_texts(model, [body.prompt], add_special_tokens=add_special_tokens, is_truncated=True)
    return prompt
