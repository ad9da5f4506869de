"""langchain over all three APIs: its tools, its structured output and a loop with a real tool.

    LANGCHAIN_PYTHON=venv/bin/python pytest -m slow tests/server/agents/test_langchain.py

langchain-openai and langchain-anthropic are no dependencies of the tests: they may be in an environment of their own.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from server.agents.programs import run_program

PROGRAM = Path(__file__).with_name("langchain_program.py")


@pytest.mark.slow  # imports in another environment take ten seconds
@pytest.mark.timeout(900)
def test_langchain_works_with_forced_calls(served: str) -> None:
    python = os.environ.get("LANGCHAIN_PYTHON")
    if python is None and (find_spec("langchain_openai") is None or find_spec("langchain_anthropic") is None):
        pytest.skip("langchain-openai and langchain-anthropic are not installed; LANGCHAIN_PYTHON may name a Python")
    printed = run_program(PROGRAM, served, python=python or sys.executable)
    loop = ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage", "ToolMessage"]
    for api in ("chat completions", "responses", "messages"):
        shown = next(line for line in printed.splitlines() if line.startswith(api))
        assert all(name in shown for name in loop), shown
