"""litellm: two turns with tools over chat, whole and streamed, over responses and over Anthropic's messages."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # do not look it up in the network

import litellm

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": PARAMETERS}}
URL = os.environ["OPENAI_BASE_URL"]


def ask(messages: list[Any], *, model: str, base: str, streams: bool) -> Any:
    asked: dict[str, Any] = {"model": model, "api_base": base, "api_key": "none", "tools": [TOOL], "max_tokens": 600}
    answer = litellm.completion(**asked, messages=messages, stream=streams)
    answer = litellm.stream_chunk_builder(list(answer), messages=messages) if streams else answer
    return answer.choices[0].message


for streams in (False, True):
    for model, base in (("openai/scripted", URL), ("hosted_vllm/scripted", URL), ("anthropic/scripted", URL[:-3])):
        messages: list[Any] = []
        for question in ("The weather in Bern?", "And the weather tomorrow?"):
            messages.append({"role": "user", "content": question})
            called = ask(messages, model=model, base=base, streams=streams)
            (call,) = called.tool_calls
            assert json.loads(call.function.arguments) == {"city": "Bern"}, called
            messages += [called.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
            messages.append(ask(messages, model=model, base=base, streams=streams).model_dump())
            assert messages[-1]["content"] == "It is sunny.", messages[-1]
tool = {"type": "function", **TOOL["function"]}
items: list[Any] = [{"role": "user", "content": "The weather in Bern?"}]
response = litellm.responses(model="openai/scripted", api_base=URL, api_key="none", input=items, tools=[tool])
call = next(item for item in response.output if item.type == "function_call")
more = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
again = litellm.responses(
    model="openai/scripted", api_base=URL, api_key="none", input=more, tools=[tool], previous_response_id=response.id
)
assert "It is sunny." in str(again.output), again
