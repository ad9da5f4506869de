"""From items to the messages of a conversation, and from a response's body to a chat's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.server.bodies.conversation import (
    ChosenFunction,
    FunctionCall,
    Message,
    NamedToolChoice,
    TextPart,
    ToolCall,
    ToolChoice,
)
from quire.server.errors import ApiError, invalid
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.responses.schema import FunctionTool, InputItem, NamedFunction, ResponsesRequest, TextItemPart


def to_chat(body: ResponsesRequest, messages: Sequence[Message]) -> ChatCompletionRequest:
    """The chat that gives the answer to a response's body.

    Args:
        messages: of the conversation so far, this body's input included.
    """
    given: dict[str, Any] = body.shared_with_chat()
    if body.instructions is not None:
        messages = [Message(role="system", content=body.instructions), *messages]
    if body.tools:
        given["tools"] = [_tool(tool) for tool in body.tools]
    if body.text is not None and (text_format := body.text.format) is not None:
        given["response_format"] = as_response_format(text_format.type, text_format.schema_, "text.format.schema")
    if "message.output_text.logprobs" in (body.include or ()) or body.top_logprobs:
        given |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    choice: ToolChoice | None
    if isinstance(body.tool_choice, NamedFunction):
        choice = NamedToolChoice(type="function", function=ChosenFunction(name=body.tool_choice.name))
    else:
        choice = body.tool_choice
    return ChatCompletionRequest(
        messages=list(messages),
        max_completion_tokens=body.max_output_tokens,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning is not None else None,
        stream=body.stream,
        **given,
    )


def as_response_format(kind: str, schema: dict[str, Any] | None, field: str) -> dict[str, Any]:
    """Chat's form of what an answer may be. Raises ApiError where a schema is missing, from that field."""
    if kind != "json_schema":
        return {"type": kind}
    return {"type": kind, "json_schema": {"name": "answer", "schema": _needed(schema, field)}}


def to_messages(given: str | Sequence[InputItem]) -> list[Message]:
    """The messages that an input stands for. What the assistant thought, said and called in a row is one message.

    Raises:
        ApiError: an item lacks what its type needs.
    """
    if isinstance(given, str):
        return [Message(role="user", content=given)]
    messages: list[Message] = []
    open_turn: Message | None = None  # of the assistant, which what follows may be part of
    for number, item in enumerate(given):
        where = f"input[{number}]"
        if item.type == "function_call_output":
            output = _needed(item.output, f"{where}.output")
            call_id = _needed(item.call_id, f"{where}.call_id")
            open_turn = None
            messages.append(Message(role="tool", tool_call_id=call_id, content=_text(output)))
            continue
        if item.type == "message" and _needed(item.role, f"{where}.role") != "assistant":
            content = _needed(item.content, f"{where}.content")
            open_turn = None
            messages.append(Message(role=item.role or "user", content=_parts(content)))
            continue
        if open_turn is None or not _follows(item, open_turn):
            open_turn = Message(role="assistant")
            messages.append(open_turn)
        if item.type == "function_call":
            name = _needed(item.name, f"{where}.name")
            called = FunctionCall(name=name, arguments=item.arguments or "")
            call = ToolCall(id=_needed(item.call_id, f"{where}.call_id"), function=called)
            if open_turn.tool_calls is None:
                open_turn.tool_calls = []
            open_turn.tool_calls.append(call)
        elif item.type == "reasoning":
            open_turn.reasoning_content = _text(item.content or item.summary or "") or None
            open_turn.content = open_turn.content or ""
        else:
            open_turn.content = _text(_needed(item.content, f"{where}.content"))
    return messages


def _follows(item: InputItem, turn: Message) -> bool:
    """Whether an item of the assistant's goes on with its turn."""
    if item.type == "reasoning":
        return False
    return item.type == "function_call" or not (turn.tool_calls or turn.content)


def _needed(value: Any, field: str) -> Any:
    if value is None:
        raise ApiError(400, f"{field} is missing: an item of this type needs it", field, "missing_required_parameter")
    return value


def _text(content: str | Sequence[TextItemPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _parts(content: str | Sequence[TextItemPart]) -> str | list[TextPart]:
    if isinstance(content, str):
        return content
    if not content:
        raise invalid("a message's content is an empty list; give it a text", "input")
    return [TextPart(type="text", text=part.text) for part in content]


def _tool(tool: FunctionTool) -> dict[str, Any]:
    """In chat's form, in which templates know it."""
    function = {name: value for name, value in tool.given.items() if name != "type" and value is not None}
    return {"type": "function", "function": function}
