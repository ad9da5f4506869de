"""POST /v1/messages, and POST /v1/messages/count_tokens, translated to chat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.server.anthropic import schema
from quire.server.bodies.conversation import (
    ChosenFunction,
    FunctionCall,
    Message,
    NamedToolChoice,
    ToolCall,
    ToolChoice,
    read_cut_arguments,
)
from quire.server.bodies.fields import MAX_STOP_STRINGS
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.errors import ApiError, anthropic_body, invalid, required
from quire.server.generation.generation import AnswerWriter, GenerationJob, named_events, send_answer
from quire.server.http.routes import Routes
from quire.server.openai.endpoint import ChatEndpoint
from quire.server.openai.openapi import streamed
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.tools.answer_reader import AnswerForm, AnswerReader
from quire.server.tools.parser import CallArguments, CallStart, Content, Event, Reasoning, random_id

JsonObject = dict[str, Any]


class MessageWriter(AnswerWriter):
    def __init__(self, job: GenerationJob, body: schema.MessagesRequest) -> None:
        super().__init__(job)
        self._body = body
        self._reader = AnswerReader(job.form or AnswerForm())
        self._blocks: list[JsonObject] = []
        self._arguments = ""  # of the call that is open
        self._is_open = False
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (completion,) = outputs[0].outputs
        self._add(self._reader.read(completion.text))
        self._close_block()
        self._set_stop_reason(completion)
        return json.dumps(self._reply(), ensure_ascii=False, separators=(",", ":")).encode()

    def _open(self, number: int, event: Started) -> bytes:
        return named_events([{"type": "message_start", "message": self._reply()}])

    def close(self) -> bytes:
        ending = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        usage = self._usage()
        return named_events([{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}])

    def fail(self, error: ApiError) -> bytes:
        return named_events([anthropic_body(error)])

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        events = self._add(self._reader.feed(delta.text))
        if delta.finish_reason is not None:
            events += self._add(self._reader.finish())
            events += self._close_block()
            self._set_stop_reason(delta)
        return named_events(events)

    def _set_stop_reason(self, ended: CompletionOutput | Delta) -> None:
        if ended.finish_reason == "length":
            has_room = self.usage.num_output_tokens < self._body.max_tokens
            self._stop_reason = "model_context_window_exceeded" if has_room else "max_tokens"
        elif self._reader.num_calls:
            self._stop_reason = "tool_use"
        elif isinstance(ended.stop_reason, str):
            self._stop_reason, self._stop_sequence = "stop_sequence", ended.stop_reason
        else:
            self._stop_reason = "end_turn"

    def _add(self, events: Iterable[Event]) -> list[JsonObject]:
        """Add parts of the answer to the blocks. Returns the events of the stream."""
        shown: list[JsonObject] = []
        for event in events:
            match event:
                case Reasoning(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "thinking":
                        shown += self._open_block({"type": "thinking", "thinking": "", "signature": ""})
                    self._blocks[-1]["thinking"] += text
                    shown.append(self._delta(type="thinking_delta", thinking=text))
                case Content(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "text":
                        shown += self._open_block({"type": "text", "text": ""})
                    self._blocks[-1]["text"] += text
                    shown.append(self._delta(type="text_delta", text=text))
                case CallStart():
                    shown += self._open_block({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
                case CallArguments(text=text):
                    self._arguments += text
                    shown.append(self._delta(type="input_json_delta", partial_json=text))
        return shown

    def _open_block(self, block: JsonObject) -> list[JsonObject]:
        shown = self._close_block()
        self._is_open, self._arguments = True, ""
        self._blocks.append(block)
        return [*shown, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": {**block}}]

    def _close_block(self) -> list[JsonObject]:
        if not self._is_open:
            return []
        self._is_open = False
        if self._blocks[-1]["type"] == "tool_use":
            self._blocks[-1]["input"] = read_cut_arguments(self._arguments)
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _delta(self, **delta: str) -> JsonObject:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _reply(self) -> JsonObject:
        return {
            "id": self.job.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.job.model.name,
            "content": [{**block} for block in self._blocks],
            "stop_reason": self._stop_reason,
            "stop_sequence": self._stop_sequence,
            "usage": self._usage(),
        }

    def _usage(self) -> JsonObject:
        count = self.usage.to_usage()
        cached = count.prompt_tokens_details.cached_tokens if count.prompt_tokens_details is not None else 0
        stored = self.num_stored_tokens(cached) if self._body.is_marked else 0
        usage = schema.MessageUsage(
            input_tokens=count.prompt_tokens - cached - stored,
            cache_creation_input_tokens=stored,
            cache_read_input_tokens=cached,
            output_tokens=count.completion_tokens,
        )
        if count.why is not None:
            usage.why = count.why
        return usage.model_dump(exclude_unset=True)


def to_chat(body: schema.CountTokensRequest) -> ChatCompletionRequest:
    """Return the chat that answers a body. Raises ApiError for blocks without a field that their type needs."""
    given = body.shared_with_chat()
    if body.thinking is not None:
        is_enabled = body.thinking.type != "disabled"
        given["chat_template_kwargs"] = {"enable_thinking": is_enabled, **(body.chat_template_kwargs or {})}
        given["include_reasoning"] = body.thinking.display != "omitted"
    if body.output_config is not None:
        given["reasoning_effort"] = body.output_config.effort
        if (wanted := body.output_config.format) is not None:
            about = {"name": "answer", "schema": wanted.schema_}
            given["response_format"] = {"type": "json_schema", "json_schema": about}
    if body.tools:
        given["tools"] = []
        for tool in body.tools:
            about = tool.model_dump(include={"name", "description", "strict"}, exclude_none=True)
            given["tools"].append({"type": "function", "function": {**about, "parameters": tool.input_schema}})
    if body.tool_choice is not None:
        given["tool_choice"] = _choice(body)
        given["parallel_tool_calls"] = not body.tool_choice.disable_parallel_tool_use
    if isinstance(body, schema.MessagesRequest):
        given["max_completion_tokens"] = body.max_tokens
        given["stream"] = body.stream
        given["stop"] = _stop_strings(body)
    messages = list(_messages(body))
    if messages[-1].role == "assistant" and not messages[-1].tool_calls:
        given["continue_final_message"] = True
    return ChatCompletionRequest(messages=messages, **given)


def _stop_strings(body: schema.MessagesRequest) -> list[str]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    together = [*stops, *(body.stop_sequences or ())]
    if len(together) > MAX_STOP_STRINGS:
        why = f"with stop they are {len(together)}, and an answer takes at most {MAX_STOP_STRINGS}"
        raise invalid(f"stop_sequences is too long: {why}; send fewer", "stop_sequences")
    return together


def _choice(body: schema.CountTokensRequest) -> ToolChoice:
    choice = body.tool_choice
    assert choice is not None
    if choice.type == "tool":
        name = required(choice.name, "tool_choice.name", "a choice of the type tool")
        return NamedToolChoice(type="function", function=ChosenFunction(name=name))
    return "required" if choice.type == "any" else choice.type


def _messages(body: schema.CountTokensRequest) -> Iterator[Message]:
    if body.system and (system := _stable(_text(body.system))):
        yield Message(role="system", content=system)
    for number, message in enumerate(body.messages):
        if isinstance(message.content, str):
            yield Message(role=message.role, content=message.content)
        elif message.role == "assistant":
            yield _assistant_message(message.content, f"messages[{number}]")
        else:
            yield from _user_messages(message, message.content, f"messages[{number}]")


def _assistant_message(blocks: Sequence[schema.InputBlock], where: str) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for number, block in enumerate(blocks):
        field = f"{where}.content[{number}]"
        match block.type:
            case "text":
                texts.append(_needed(block.text, f"{field}.text"))
            case "thinking":
                thoughts.append(block.thinking or "")
            case "tool_use":
                called = FunctionCall(name=_needed(block.name, f"{field}.name"), arguments=block.input or {})
                calls.append(ToolCall(id=_needed(block.id, f"{field}.id"), function=called))
            case "tool_result":
                raise _misplaced(field, "tool_result belongs in a message of the user")
    return Message(
        role="assistant",
        content="\n".join(texts) if texts or not calls else None,
        reasoning_content="\n".join(thoughts) or None,
        tool_calls=calls or None,
    )


def _user_messages(message: schema.InputMessage, blocks: Sequence[schema.InputBlock], where: str) -> Iterator[Message]:
    """Yield a message for each result, and one for the text between two results."""
    texts: list[str] = []
    for number, block in enumerate(blocks):
        field = f"{where}.content[{number}]"
        if block.type == "text":
            texts.append(_needed(block.text, f"{field}.text"))
            continue
        if block.type != "tool_result":
            raise _misplaced(field, f"{block.type} belongs in a message of the assistant")
        if texts:
            yield Message(role=message.role, content="\n".join(texts))
            texts = []
        call_id = _needed(block.tool_use_id, f"{field}.tool_use_id")
        yield Message(role="tool", tool_call_id=call_id, content=_text(block.content or ""))
    if texts:
        yield Message(role=message.role, content="\n".join(texts))


def _text(content: str | Sequence[schema.TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _stable(system: str) -> str:
    """Remove the first line of Claude Code's system prompts, which has a hash of the request: no prefix would match."""
    return system.partition("\n")[2] if system.startswith("x-anthropic-billing-header:") else system


def _needed(value: Any, field: str) -> Any:
    return required(value, field, "a block of this type")


def _misplaced(field: str, why: str) -> ApiError:
    return invalid(f"{field}.type is not valid: {why}", f"{field}.type")


def message_routes(chat: ChatEndpoint) -> Routes:
    """The routes, over the conversations that `chat` runs."""
    routes = Routes("generate", responses=ERROR_RESPONSES)
    responses: dict[int | str, Any] = {200: streamed(schema.MessageEvent, has_done=False)}
    summary = "Answer a conversation in Anthropic's form"

    @routes.post("/v1/messages", response_model=schema.MessageReply, responses=responses, summary=summary)
    async def create_message(request: Request, body: schema.MessagesRequest) -> Response:
        if body.thread is not None:  # the client's tool runner sends one, and goes on without it at this code
            raise ApiError(
                400, "this server holds no threads; send the whole conversation", "thread", "thread_unsupported_request"
            )
        job = await chat.prepare(request, to_chat(body), answer_id=f"msg_{random_id(24)}")
        writer, keep_alive_s = MessageWriter(job, body), chat.settings.keep_alive_s
        return await send_answer(request, job, writer, is_streamed=bool(body.stream), keep_alive_s=keep_alive_s)

    @routes.post("/v1/messages/count_tokens", response_model=schema.TokenCount, summary="Count the tokens of a prompt")
    async def count_tokens(request: Request, body: schema.CountTokensRequest) -> Response:
        return JSONResponse({"input_tokens": await chat.count_tokens(request, to_chat(body))})

    return routes
