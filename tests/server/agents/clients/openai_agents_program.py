"""openai-agents: two turns over chat and over responses, and an output type beside forced tools."""

from __future__ import annotations

from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

CALLS = []


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


class Report(BaseModel):
    sky: Literal["clear", "grey"]


set_tracing_disabled(True)
for make in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
    model = make(model="scripted", openai_client=AsyncOpenAI())
    agent = Agent(name="a", instructions="Be brief.", tools=[weather], model=model)
    CALLS.clear()
    first = Runner.run_sync(agent, "The weather in Bern?")
    assert first.final_output == "It is sunny.", first
    second = Runner.run_sync(agent, [*first.to_input_list(), {"role": "user", "content": "And the weather tomorrow?"}])
    assert second.final_output == "It is sunny.", second
    assert CALLS == ["Bern", "Bern"], CALLS
    typed = Agent(
        name="b", tools=[weather], model=model, output_type=Report, model_settings=ModelSettings(tool_choice="required")
    )
    report = Runner.run_sync(typed, "The weather in Bern?").final_output
    assert isinstance(report, Report), report
