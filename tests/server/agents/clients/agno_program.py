"""agno: two turns with tools over chat and responses, and an output schema."""

from __future__ import annotations

import os
from typing import Literal

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAILike, OpenAIResponses
from pydantic import BaseModel

CALLS = []


class Report(BaseModel):
    """A report."""

    sky: Literal["clear", "grey"]


def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


for make in (OpenAILike, OpenAIResponses):
    model = make(id="scripted", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
    CALLS.clear()
    agent = Agent(model=model, tools=[weather], db=InMemoryDb(), add_history_to_context=True, telemetry=False)
    for question in ("The weather in Bern?", "And the weather tomorrow?"):
        answer = agent.run(question, session_id="one")
        assert answer.content == "It is sunny.", answer
    assert CALLS == ["Bern", "Bern"], CALLS
    report = Agent(model=model, output_schema=Report, telemetry=False).run("The sky as JSON?").content
    assert isinstance(report, Report), report
