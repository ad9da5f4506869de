"""llama-index-llms-openai-like: two turns with tools, by hand and by its agent; structured prediction."""

from __future__ import annotations

import asyncio
import os
from typing import Literal

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

CALLS = []


class Report(BaseModel):
    """A report."""

    sky: Literal["clear", "grey"]


def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


llm = OpenAILike(
    model="scripted",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key="none",
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
    context_window=16000,
)


async def main() -> None:
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(weather)], llm=llm, system_prompt="Be brief.")
    context = Context(agent)
    for question in ("The weather in Bern?", "And the weather tomorrow?"):
        answer = await agent.run(user_msg=question, ctx=context)
        assert str(answer) == "It is sunny.", answer
    assert CALLS == ["Bern", "Bern"], CALLS


asyncio.run(main())
report = llm.structured_predict(Report, PromptTemplate("The sky?"), llm_kwargs={"tool_choice": "required"})
assert isinstance(report, Report), report
