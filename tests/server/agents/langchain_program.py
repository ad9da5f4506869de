"""A program with langchain: bound and forced tools, structured output, and a loop with a real tool.

Run by test_langchain.py on any model, since grammars force its calls and answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

Small = Annotated[int, Field(ge=0, le=999)]


@tool
def multiply(first: Small, second: Small) -> int:
    """Multiply two numbers."""
    return first * second


@tool
def paint(colour: Literal["red", "green"]) -> str:
    """Paint the fence."""
    return f"The fence is {colour}."


class Answer(BaseModel):
    """What is wanted."""

    size: Literal["S", "M", "L"]
    count: Small


TOOLS = {each.name: each for each in (multiply, paint)}
QUESTION = HumanMessage("What are 12 times 17?")


def run(kind: str, make: Callable[[], Any]) -> None:
    model = make()
    answer = model.with_structured_output(Answer).invoke([QUESTION])
    assert isinstance(answer, Answer), answer
    if isinstance(model, ChatOpenAI):
        by_call = model.with_structured_output(Answer, method="function_calling").invoke([QUESTION])
        assert isinstance(by_call, Answer), by_call
    forced = model.bind_tools(list(TOOLS.values()), tool_choice="any")
    chunks = list(forced.stream([QUESTION]))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.tool_calls, whole
    assert not whole.invalid_tool_calls, whole
    named = model.bind_tools(list(TOOLS.values()), tool_choice="multiply").invoke([QUESTION])
    assert [call["name"] for call in named.tool_calls] == ["multiply"], named
    loop(kind, model, model.bind_tools(list(TOOLS.values()), tool_choice="any", parallel_tool_calls=False))


def loop(kind: str, model: Any, forced: Any) -> None:
    """Two turns that call tools and receive their results, and one that answers."""
    messages: list[Any] = [QUESTION]
    for _ in range(2):
        called: AIMessage = forced.invoke(messages)
        assert called.tool_calls, called
        messages.append(called)
        for call in called.tool_calls:
            result = TOOLS[call["name"]].invoke(call)
            assert isinstance(result, ToolMessage), result
            messages.append(result)
    last = model.invoke(messages)
    assert not last.tool_calls, last
    print(kind, [type(message).__name__ for message in messages], last.usage_metadata)


def main() -> None:
    settled: dict[str, Any] = {"model": "quire-mini", "temperature": 1.0, "max_tokens": 700, "max_retries": 0}
    run("chat completions", lambda: ChatOpenAI(**settled))
    run("responses", lambda: ChatOpenAI(**settled, use_responses_api=True))
    run("messages", lambda: ChatAnthropic(**settled))  # type: ignore[call-arg]


if __name__ == "__main__":
    main()
