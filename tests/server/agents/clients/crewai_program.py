"""crewai: two tasks, each with a tool."""

from __future__ import annotations

import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

CALLS = []


@tool("weather")
def weather(city: str) -> str:
    """Tell the weather."""
    CALLS.append(city)
    return "sunny"


llm = LLM(model="openai/scripted", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
agent = Agent(role="guide", goal="Answer.", backstory="A guide.", tools=[weather], llm=llm, verbose=False)
tasks = [
    Task(description=f"The weather {when}?", expected_output="A sentence.", agent=agent)
    for when in ("in Bern", "in Bern tomorrow")
]
crew = Crew(agents=[agent], tasks=tasks, verbose=False)
result = crew.kickoff()
assert [str(output) for output in result.tasks_output] == ["It is sunny.", "It is sunny."], result
assert CALLS, CALLS
