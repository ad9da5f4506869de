"""pydantic-ai: two turns with tools over chat, responses and messages; output by a tool and by the format."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel


class Report(BaseModel):
    """A report."""

    sky: Literal["clear", "grey"]


CALLS: list[str] = []


def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


for make in (OpenAIChatModel, OpenAIResponsesModel, AnthropicModel):
    model: Any = make("scripted")
    agent = Agent(model, instructions="Be brief.")
    agent.tool_plain(weather)
    CALLS.clear()
    first = agent.run_sync("The weather in Bern?")
    second = agent.run_sync("And the weather tomorrow?", message_history=first.all_messages())
    assert (first.output, second.output, CALLS) == ("It is sunny.", "It is sunny.", ["Bern", "Bern"])
    for output in (ToolOutput(Report), NativeOutput(Report)):
        if make is AnthropicModel and isinstance(output, NativeOutput):
            continue  # the client knows which of Anthropic's models can
        report = Agent(model, output_type=output).run_sync("The sky?").output
        assert isinstance(report, Report), report
