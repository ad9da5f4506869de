"""The anthropic SDK: two turns of its tool runner, and a stream with the fields that Claude Code sends."""

from __future__ import annotations

from typing import Any

import anthropic

CALLS = []


@anthropic.beta_tool
def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


client = anthropic.Anthropic(max_retries=0)
messages: list[Any] = []
for question in ("The weather in Bern?", "And the weather tomorrow?"):
    messages.append({"role": "user", "content": question})
    runner = client.beta.messages.tool_runner(model="scripted", max_tokens=600, tools=[weather], messages=messages)
    for message in runner:
        messages.append({"role": "assistant", "content": message.content})
        if (results := runner.generate_tool_call_response()) is not None:
            messages.append(results)
    assert messages[-1]["content"][0].text == "It is sunny.", messages[-1]
assert CALLS == ["Bern", "Bern"], CALLS
tools: list[Any] = [
    {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"type": "web_search_20250305", "name": "web_search"},
]
keep: Any = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
with client.beta.messages.stream(
    model="scripted", max_tokens=600, messages=messages[:1], tools=tools, context_management=keep, mcp_servers=[],
    thinking={"type": "adaptive"}, output_config={"effort": "high"}, metadata={"user_id": "x"},
    betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
    system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
) as stream:  # fmt: skip
    assert stream.get_final_message().stop_reason == "tool_use"
