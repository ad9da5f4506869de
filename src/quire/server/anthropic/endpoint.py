"""POST /v1/messages, and POST /v1/messages/count_tokens."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.server.anthropic.schema import CountTokensRequest, MessageEvent, MessageReply, MessagesRequest, TokenCount
from quire.server.anthropic.translate import to_chat
from quire.server.anthropic.writer import MessageWriter
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.errors import ApiError
from quire.server.generation.streaming import send_answer
from quire.server.http.body import JsonRoute
from quire.server.openai.chat import ChatEndpoint
from quire.server.openai.openapi import streamed
from quire.server.tools.parser import random_id


def message_routes(chat: ChatEndpoint) -> APIRouter:
    """The routes, over the conversations that `chat` runs."""
    router = APIRouter(route_class=JsonRoute, tags=["generate"])
    responses = {**ERROR_RESPONSES, 200: streamed(MessageEvent, has_done=False)}

    @router.post(
        "/v1/messages",
        response_model=MessageReply,
        responses=responses,
        summary="Answer a conversation in Anthropic's form",
    )
    async def create_message(request: Request, body: MessagesRequest) -> Response:
        if body.thread is not None:  # the client's tool runner sends one, and goes on without it at this code
            raise ApiError(
                400, "this server holds no threads; send the whole conversation", "thread", "thread_unsupported_request"
            )
        job = await chat.prepare(request, to_chat(body), answer_id=f"msg_{random_id(24)}")
        writer, keep_alive_s = MessageWriter(job, body), chat.settings.keep_alive_s
        return await send_answer(request, job, writer, is_streamed=bool(body.stream), keep_alive_s=keep_alive_s)

    @router.post(
        "/v1/messages/count_tokens",
        response_model=TokenCount,
        responses=ERROR_RESPONSES,
        summary="Count the tokens of a prompt",
    )
    async def count_tokens(request: Request, body: CountTokensRequest) -> Response:
        return JSONResponse({"input_tokens": await chat.count_tokens(request, to_chat(body))})

    return router
