"""From a response's body and items to a chat's body and messages."""

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
)
from quire.server.errors import invalid, required
from quire.server.openai.schema import ChatCompletionRequest
from quire.server.responses.schema import InputItem, NamedFunction, ResponsesRequest, TextItemPart


def to_chat(body: ResponsesRequest, messages: Sequence[Message]) -> ChatCompletionRequest:
    """Return the chat that answers a response's body.

    Args:
        messages: the conversation so far, with this body's input.
    """
    given: dict[str, Any] = body.shared_with_chat()
    if body.instructions is not None:
        messages = [Message(role="system", content=body.instructions), *messages]
    if body.tools:
        functions = [{name: value for name, value in tool.given.items() if name != "type"} for tool in body.tools]
        given["tools"] = [
            {"type": "function", "function": {name: value for name, value in each.items() if value is not None}}
            for each in functions
        ]
    if body.text is not None and (text_format := body.text.format) is not None:
        given["response_format"] = {"type": text_format.type}
        if text_format.type == "json_schema":
            schema = required(text_format.schema_, "text.format.schema", "a format of this type")
            given["response_format"]["json_schema"] = {"name": "answer", "schema": schema}
    if "message.output_text.logprobs" in (body.include or ()) or body.top_logprobs:
        given |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    choice = body.tool_choice
    if isinstance(choice, NamedFunction):
        given["tool_choice"] = NamedToolChoice(type="function", function=ChosenFunction(name=choice.name))
    else:
        given["tool_choice"] = choice
    return ChatCompletionRequest(
        messages=list(messages),
        max_completion_tokens=body.max_output_tokens,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning is not None else None,
        stream=body.stream,
        **given,
    )


def to_messages(given: str | Sequence[InputItem]) -> list[Message]:
    """Return the messages for an input. Reasoning, text and calls of the assistant in a row become one message.

    Raises:
        ApiError: an item lacks a field that its type needs.
    """
    if isinstance(given, str):
        return [Message(role="user", content=given)]
    messages: list[Message] = []
    turn: Message | None = None  # of the assistant, to which the next items may belong
    for number, item in enumerate(given):

        def needed(name: str, item: InputItem = item, number: int = number) -> Any:
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


def _continues(item: InputItem, turn: Message) -> bool:
    """Whether an item of the assistant belongs to its turn."""
    if item.type == "reasoning":
        return False
    return item.type == "function_call" or not (turn.tool_calls or turn.content)


def _text(content: str | Sequence[TextItemPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _parts(content: str | Sequence[TextItemPart]) -> str | list[TextPart]:
    if isinstance(content, str):
        return content
    if not content:
        raise invalid("a message's content is an empty list; give it a text", "input")
    return [TextPart(type="text", text=part.text) for part in content]
