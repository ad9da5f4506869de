"""POST /v1/responses, and what was stored of it: GET and DELETE /v1/responses/ID."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.server.bodies.conversation import Message
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.errors import ApiError, invalid
from quire.server.generation.streaming import send_answer
from quire.server.http.auth import key_id_of
from quire.server.http.body import JsonRoute
from quire.server.openai.chat import ChatEndpoint
from quire.server.openai.openapi import streamed
from quire.server.responses.schema import DeletedResponse, InputItem, ResponseEvent, ResponseReply, ResponsesRequest
from quire.server.responses.store import ResponseStore, StoredResponse
from quire.server.responses.translate import to_chat, to_messages
from quire.server.responses.writer import ResponseWriter, encode_reply
from quire.server.tools.parser import random_id


class ResponsesEndpoint:
    """Answers as chat does, in another form.

    Args:
        chat: runs the conversations.
        store: of responses to go on from.
    """

    def __init__(self, chat: ChatEndpoint, store: ResponseStore) -> None:
        self.chat = chat
        self.store = store

    def route(self) -> APIRouter:
        router = APIRouter(route_class=JsonRoute, tags=["generate"])
        responses = {**ERROR_RESPONSES, 200: streamed(ResponseEvent, has_done=False)}

        @router.post(
            "/v1/responses", response_model=ResponseReply, responses=responses, summary="Answer, as a list of items"
        )
        async def create_response(request: Request, body: ResponsesRequest) -> Response:
            return await self.answer(request, body)

        plain = APIRouter(tags=["generate"])

        @plain.get(
            "/v1/responses/{response_id}", response_model=ResponseReply, responses=ERROR_RESPONSES,
            summary="A stored response",
        )  # fmt: skip
        async def show_response(request: Request, response_id: str) -> Response:
            body = encode_reply(self._find(response_id, key_id_of(request.scope)).reply)
            return Response(body, media_type="application/json")

        @plain.delete(
            "/v1/responses/{response_id}", response_model=DeletedResponse, responses=ERROR_RESPONSES,
            summary="Delete a stored response",
        )  # fmt: skip
        async def delete_response(request: Request, response_id: str) -> Response:
            self._find(response_id, owner := key_id_of(request.scope))
            self.store.delete(response_id, owner)
            return JSONResponse({"id": response_id, "object": "response.deleted", "deleted": True})

        router.include_router(plain)
        return router

    async def answer(self, request: Request, body: ResponsesRequest) -> Response:
        """The response to a body, whole or as a stream."""
        owner = key_id_of(request.scope)
        if body.stream_options is not None and not body.stream:
            raise invalid("stream_options go with stream=true", "stream_options")
        before = [] if body.previous_response_id is None else self._find_previous(body.previous_response_id, owner)
        messages = [*before, *to_messages(body.input)]
        asked = to_chat(body, messages)
        try:
            job = await self.chat.prepare(request, asked, answer_id=f"resp_{random_id(32)}")
        except ApiError as error:
            if error.param is not None and error.param.startswith("messages"):
                error.param = "input"  # of which they were made
            raise
        keep = partial(self._keep, owner, messages) if body.store is not False else lambda reply: None
        writer, keep_alive_s = ResponseWriter(job, body, keep), self.chat.settings.keep_alive_s
        return await send_answer(request, job, writer, is_streamed=bool(body.stream), keep_alive_s=keep_alive_s)

    def _keep(self, owner: str, messages: list[Message], reply: dict[str, Any]) -> None:
        said = to_messages([InputItem.model_validate(item) for item in reply["output"]])
        self.store.add(reply["id"], StoredResponse(owner, reply, [*messages, *said]))

    def _find(self, response_id: str, owner: str) -> StoredResponse:
        found = self.store.find(response_id, owner)
        if found is None:
            raise ApiError(
                404,
                f"there is no response {response_id!r:.100}: responses are kept in memory, and the least recently used "
                "are forgotten; send the conversation's items as input",
                "previous_response_id",
                "response_not_found",
            )
        return found

    def _find_previous(self, response_id: str, owner: str) -> list[Message]:
        return list(self._find(response_id, owner).messages)
