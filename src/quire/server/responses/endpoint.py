"""POST /v1/responses, and stored responses below /v1/responses/ID: show, delete, cancel, list the input.

When the store is full, the key with the largest share loses its least recently used response.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.async_engine.messages import ModelState
from quire.server.bodies.conversation import (
    AllowedToolChoice,
    AllowedTools,
    ChosenFunction,
    FunctionCall,
    Message,
    NamedToolChoice,
    TextPart,
    ToolCall,
)
from quire.server.bodies.replies import ERROR_RESPONSES, Deleted, page
from quire.server.errors import ApiError, invalid, required
from quire.server.generation.generation import GenerationJob, send_answer
from quire.server.http.middleware import key_id_of
from quire.server.http.routes import Routes
from quire.server.openai.endpoint import ChatEndpoint
from quire.server.openai.openapi import streamed
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.responses import schema
from quire.server.responses.background import BackgroundAnswer
from quire.server.responses.writer import ResponseWriter, encode_reply
from quire.server.tools.parser import random_id

_MAX_CHARACTERS_PER_TOKEN = 8  # of text on average, generously


def to_chat(body: schema.ResponsesRequest, messages: Sequence[Message]) -> ChatCompletionRequest:
    """Return the chat that answers a response's body. `messages` are the conversation with this body's input."""
    given: dict[str, Any] = body.shared_with_chat()
    if body.instructions is not None:
        messages = [Message(role="system", content=body.instructions), *messages]
    if body.tools:
        functions = [{k: v for k, v in tool.given.items() if k != "type" and v is not None} for tool in body.tools]
        given["tools"] = [{"type": "function", "function": function} for function in functions]
    if body.text is not None and (text_format := body.text.format) is not None:
        given["response_format"] = {"type": text_format.type}
        if text_format.type == "json_schema":
            json_schema = required(text_format.schema_, "text.format.schema", "a format of this type")
            given["response_format"]["json_schema"] = {"name": "answer", "schema": json_schema}
    if "message.output_text.logprobs" in (body.include or ()):
        raise invalid("a response has no log-probabilities; ask /v1/chat/completions for them", "include")
    match body.tool_choice:
        case schema.NamedFunction(name=name):
            given["tool_choice"] = _named(name)
        case schema.AllowedFunctions(mode=mode, tools=tools):
            allowed = AllowedTools(mode=mode, tools=[_named(tool.name) for tool in tools])
            given["tool_choice"] = AllowedToolChoice(type="allowed_tools", allowed_tools=allowed)
        case choice:
            given["tool_choice"] = choice
    return ChatCompletionRequest(
        messages=list(messages),
        max_completion_tokens=body.max_output_tokens,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning is not None else None,
        stream=body.stream,
        **given,
    )


def _named(name: str) -> NamedToolChoice:
    return NamedToolChoice(type="function", function=ChosenFunction(name=name))


def to_messages(given: Sequence[schema.InputItem]) -> list[Message]:
    """Return the messages for items. Reasoning, text and calls of the assistant in a row become one message. Raises
    ApiError for an item without a field that its type needs."""
    messages: list[Message] = []
    turn: Message | None = None  # of the assistant, to which the next items may belong
    for number, item in enumerate(given):

        def needed(name: str, item: schema.InputItem = item, number: int = number) -> Any:
            return required(getattr(item, name), f"input[{number}].{name}", "an item of this type")

        if item.type == "function_call_output":
            turn = None
            messages.append(Message(role="tool", content=_text(needed("output")), tool_call_id=needed("call_id")))
            continue
        if item.type == "message" and needed("role") != "assistant":
            turn = None
            messages.append(Message(role=item.role or "user", content=_parts(needed("content"))))
            continue
        if turn is None or not _continues(item, turn):
            turn = Message(role="assistant")
            messages.append(turn)
        if item.type == "function_call":
            called = FunctionCall(name=needed("name"), arguments=item.arguments or "")
            turn.tool_calls = [*(turn.tool_calls or ()), ToolCall(id=needed("call_id"), function=called)]
        elif item.type == "reasoning":
            turn.reasoning_content = _text(item.content or item.summary or "") or None
            turn.content = turn.content or ""
        else:
            turn.content = _text(needed("content"))
    return messages


def _continues(item: schema.InputItem, turn: Message) -> bool:
    if item.type == "reasoning":
        return False
    return item.type == "function_call" or not (turn.tool_calls or turn.content)


def _text(content: str | Sequence[schema.TextItemPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _parts(content: str | Sequence[schema.TextItemPart]) -> str | list[TextPart]:
    if isinstance(content, str):
        return content
    if not content:
        raise invalid("a message's content is an empty list; give it a text", "input")
    return [TextPart(type="text", text=part.text) for part in content]


_MAX_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True)
class StoredResponse:
    owner: str  #: id of the key, which alone can read it
    reply: dict[str, Any]  #: the response as sent
    items: Sequence[schema.InputItem]  #: the conversation before this answer, without instructions
    work: BackgroundAnswer | None = None  #: goes on in the background; it ends when the response is dropped


class ResponseStore:
    """Keeps up to `capacity` responses of together at most `max_characters`."""

    def __init__(self, capacity: int, max_characters: int = _MAX_CHARACTERS) -> None:
        self._capacity = capacity
        self._max_characters = max_characters
        self._owned: dict[str, OrderedDict[str, tuple[StoredResponse, int]]] = {}  #: owner -> id -> response, size

    def __len__(self) -> int:
        return sum(map(len, self._owned.values()))

    def add(self, response_id: str, response: StoredResponse) -> None:
        """Store a response; evict others of the owner with the largest share, at a tie of this one."""
        num_characters = sum(len(repr(part)) for part in (*response.items, response.reply))  # nearly
        self._owned.setdefault(response.owner, OrderedDict())[response_id] = response, num_characters
        while len(self) > self._capacity:
            self._evict(max(self._owned, key=lambda owner: (len(self._owned[owner]), owner == response.owner)))
        while sum(map(self._size, self._owned)) > self._max_characters:
            self._evict(max(self._owned, key=lambda owner: (self._size(owner), owner == response.owner)))

    def find(self, response_id: str, owner: str) -> StoredResponse | None:
        """Return the owner's response of this id, if it is stored."""
        owned = self._owned.get(owner)
        if owned is None or response_id not in owned:
            return None
        owned.move_to_end(response_id)
        return owned[response_id][0]

    def _size(self, owner: str) -> int:
        return sum(size for _, size in self._owned[owner].values())

    def _evict(self, owner: str) -> None:
        self.delete(next(iter(self._owned[owner])), owner)

    def delete(self, response_id: str, owner: str) -> None:
        """Delete a stored response, and end its work."""
        dropped, _ = self._owned[owner].pop(response_id)
        if dropped.work is not None:
            dropped.work.task.cancel()
        if not self._owned[owner]:
            del self._owned[owner]


class ResponsesEndpoint:
    """Serves responses: conversations that `chat` runs, and the store of earlier ones."""

    def __init__(self, chat: ChatEndpoint, store: ResponseStore) -> None:
        self.chat = chat
        self.store = store

    def routes(self) -> Routes:
        routes = Routes("generate", responses=ERROR_RESPONSES)
        responses: dict[int | str, Any] = {200: streamed(schema.ResponseEvent, has_done=False)}
        summary = "Answer with a list of items"

        @routes.post("/v1/responses", response_model=schema.ResponseReply, responses=responses, summary=summary)
        async def create_response(request: Request, body: schema.ResponsesRequest) -> Response:
            return await self.answer(request, body)

        path = "/v1/responses/{response_id}"

        @routes.get(path, response_model=schema.ResponseReply, summary="Show a stored response")
        async def show_response(
            request: Request, response_id: str, stream: bool = False, starting_after: int | None = None
        ) -> Response:
            if stream or starting_after is not None:
                why = "a stored response is not streamed again; leave this out, and poll until the status is final"
                raise invalid(why, "stream" if stream else "starting_after")
            return _json(self._find(response_id, key_id_of(request.scope)).reply)

        @routes.delete(path, response_model=Deleted, summary="Delete a stored response")
        async def delete_response(request: Request, response_id: str) -> Response:
            self._find(response_id, owner := key_id_of(request.scope))
            self.store.delete(response_id, owner)
            return JSONResponse({"id": response_id, "object": "response.deleted", "deleted": True})

        @routes.post(path + "/cancel", response_model=schema.ResponseReply, summary="End a background response")
        async def cancel_response(request: Request, response_id: str) -> Response:
            found = self._find(response_id, owner := key_id_of(request.scope))
            if not found.reply["background"]:
                raise invalid("this response has no background=true; others end with their connection", "response_id")
            if found.work is not None:
                found.work.task.cancel()
                await asyncio.wait({found.work.task})
            return _json(self._find(response_id, owner).reply)

        @routes.get(
            path + "/input_items", response_model=schema.InputItemList, summary="List the items before an answer"
        )
        async def list_input_items(
            request: Request,
            response_id: str,
            limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of items.")] = 20,
            order: Annotated[Literal["asc", "desc"], Field(description="asc: oldest first; desc: newest.")] = "desc",
            after: Annotated[str | None, Field(description="Id of the item after which the list starts.")] = None,
        ) -> Response:
            items = list(self._find(response_id, key_id_of(request.scope)).items)
            items = items if order == "asc" else items[::-1]
            found = page(items, [item.id or "" for item in items], limit, after)
            return _json(
                {"first_id": None, "last_id": None} | found | {"data": [each.shown() for each in found["data"]]}
            )

        return routes

    async def answer(self, request: Request, body: schema.ResponsesRequest) -> Response:
        """Return the response, whole or as a stream, or the state of one that goes on in the background."""
        owner = key_id_of(request.scope)
        if body.stream_options is not None and not body.stream:
            raise invalid("stream_options go with stream=true", "stream_options")
        if body.background and body.store is False:
            raise invalid("background needs store=true, or nothing could show the answer", "background")
        previous = self._find(body.previous_response_id, owner) if body.previous_response_id is not None else None
        if previous is not None and previous.work is not None:
            raise invalid("the response has not ended; wait for its answer, or cancel it", "previous_response_id")
        answered = map(schema.InputItem.model_validate, previous.reply["output"]) if previous is not None else ()
        earlier = [*(previous.items if previous is not None else ()), *answered]
        own = [schema.InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
        try:
            job = await self._prepare(request, body, [*to_messages(earlier), *to_messages(own)])
        except ApiError as error:
            if error.param is not None and error.param.startswith("messages"):
                error.param = "input"
            raise
        stored = StoredResponse(owner, {}, [*earlier, *own])
        keep = partial(self._keep, stored) if body.store is not False else lambda reply: None
        writer, keep_alive_s = ResponseWriter(job, body, keep), self.chat.settings.keep_alive_s
        if not body.background:
            return await send_answer(request, job, writer, is_streamed=bool(body.stream), keep_alive_s=keep_alive_s)
        work = BackgroundAnswer(job, writer, keep_alive_s, is_streamed=bool(body.stream))
        await work.start(request.scope)
        self.store.add(job.request_id, replace(stored, reply=writer.reply, work=work))
        if self.store.find(job.request_id, owner) is None:
            raise invalid("this server has no room to store the response (--max-stored-responses)", "background")
        return work if body.stream else _json(writer.reply)

    async def _prepare(self, request: Request, body: schema.ResponsesRequest, messages: list[Message]) -> GenerationJob:
        """Prepare a chat. With truncation, drop the oldest turns: first those that cannot fit by an estimate, and each
        time it is still too long, twice as many more."""
        starts = [position for position, message in enumerate(messages) if message.role == "user"]
        num_dropped = num_certain = self._num_too_long(messages, starts) if body.truncation == "auto" else 0
        while True:
            kept = [*messages[: starts[0]], *messages[starts[num_dropped] :]] if num_dropped else messages
            try:
                return await self.chat.prepare(request, to_chat(body, kept), answer_id=f"resp_{random_id(32)}")
            except ApiError as error:
                is_last = num_dropped + 1 >= len(starts)
                if body.truncation != "auto" or error.code != "context_length_exceeded" or is_last:
                    raise
                num_dropped = min(2 * num_dropped - num_certain + 1, len(starts) - 1)

    def _num_too_long(self, messages: list[Message], starts: list[int]) -> int:
        """Count the turns that are too far from the end for any model, if a token has at most 8 characters."""
        engines = [model.async_engine for model in self.chat.models.registry]
        longest = max((each.engine.max_model_len for each in engines if each.state is ModelState.READY), default=0)
        lengths = [1 + len(message.text) // _MAX_CHARACTERS_PER_TOKEN for message in messages]
        to_end = list(accumulate(reversed(lengths)))[::-1]
        return min(sum(to_end[start] > longest for start in starts), len(starts) - 1) if longest and starts else 0

    def _keep(self, stored: StoredResponse, reply: dict[str, Any]) -> None:
        """Store a finished response, unless it was deleted before."""
        if not reply["background"] or self.store.find(reply["id"], stored.owner) is not None:
            self.store.add(reply["id"], replace(stored, reply=reply))

    def _find(self, response_id: str, owner: str) -> StoredResponse:
        found = self.store.find(response_id, owner)
        if found is None:
            raise ApiError(
                404,
                f"there is no response {response_id!r:.100}: responses are kept in memory, and the least recently used "
                "are dropped; send the conversation's items as input",
                "previous_response_id",
                "response_not_found",
            )
        return found if found.work is None else replace(found, reply=found.work.writer.reply)


def _json(reply: dict[str, Any]) -> Response:
    return Response(encode_reply(reply), media_type="application/json")
