"""langchain-openai: bound tools over two turns, chat and responses, and structured output in each way."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Report(BaseModel):
    """A report."""

    sky: Literal["clear", "grey"]


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


for uses_responses in (False, True):
    model = ChatOpenAI(model="scripted", max_retries=0, max_tokens=600, use_responses_api=uses_responses)
    agent = model.bind_tools([weather])
    messages: list[Any] = []
    for question in ("The weather in Bern?", "And the weather tomorrow?"):
        messages.append(HumanMessage(question))
        called = agent.invoke(messages)
        assert [call["args"] for call in called.tool_calls] == [{"city": "Bern"}], called
        messages += [called, *(weather.invoke(call) for call in called.tool_calls)]
        messages.append(agent.invoke(messages))
        assert messages[-1].text == "It is sunny.", messages[-1]
    for method in ("json_schema", "function_calling"):
        report = model.with_structured_output(Report, method=method).invoke("The sky?")
        assert isinstance(report, Report), report
    both = model.bind_tools([weather], response_format=Report, strict=True).invoke(
        [HumanMessage("The weather in Bern?")]
    )
    assert both.tool_calls, both
