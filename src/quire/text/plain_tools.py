"""Tools for chat templates without tool support: explained in plain text, with calls in Hermes' format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_EXPLANATION = """\
You can call functions. These are the functions that there are, one JSON object a line:
{tools}
To call one, write its name and its arguments as JSON, between these marks:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
What a function returns comes back between <tool_response> and </tool_response>."""

Message = Mapping[str, Any]


def explain_tools(messages: Sequence[Message], tools: Sequence[Any], *, takes_system: bool) -> list[Message]:
    """Explain tools of OpenAI's format in the system message, or in the first message without `takes_system`."""
    explanation = _EXPLANATION.format(tools="\n".join(map(_json, tools)))
    first, rest = (messages[0], messages[1:]) if messages else ({"role": "user", "content": ""}, [])
    if first.get("role") == "system":
        return [_with_text(first, after=f"\n\n{explanation}"), *rest]
    if takes_system:
        return [{"role": "system", "content": explanation}, *messages]
    return [_with_text(first, before=f"{explanation}\n\n"), *rest]


def spell_out_calls(messages: Sequence[Message]) -> list[Message]:
    """Turn tool calls into assistant text, and tool results into user messages."""
    spelt: list[Any] = []
    is_result = False
    for message in messages:
        was_result, is_result = is_result, isinstance(message, Mapping) and message.get("role") == "tool"
        if is_result:
            result = f"<tool_response>\n{_text(message)}\n</tool_response>"
            if was_result:
                spelt[-1] = _with_text(spelt[-1], after=f"\n{result}")
            else:
                spelt.append({"role": "user", "content": result})
        elif isinstance(message, Mapping) and message.get("tool_calls"):
            called = [call.get("function", call) for call in message["tool_calls"]]
            shown = [{name: each.get(name) for name in ("name", "arguments")} for each in called]
            calls = "\n".join(f"<tool_call>\n{_json(call)}\n</tool_call>" for call in shown)
            said = _text(message)
            plain = {name: value for name, value in message.items() if name != "tool_calls"}
            spelt.append({**plain, "content": f"{said}\n{calls}" if said else calls})
        else:
            spelt.append(message)
    return spelt


def _with_text(message: Message, *, before: str = "", after: str = "") -> Message:
    content = message.get("content") or ""
    if isinstance(content, str):
        return {**message, "content": before + content + after}
    parts = [{"type": "text", "text": text} for text in (before, after)]
    return {**message, "content": [*parts[: bool(before)], *content, *parts[2 - bool(after) :]]}


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
