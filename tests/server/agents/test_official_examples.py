"""The examples of the official clients' own repositories run unchanged.

    OPENAI_EXAMPLES=openai-python/examples ANTHROPIC_EXAMPLES=anthropic-sdk-python/examples \
    pytest -m slow tests/server/agents/test_official_examples.py

They are other people's files, so that a checkout must be there already. Two kinds run on a real server over a model
that says what it is told to: those that leave a call to the model, since the models that ship with Quire call nothing
of their own accord; and those that read an answer as JSON without asking whether it was cut short.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from family_templates import QWEN
from scripted import Script
from server.agents.programs import run_program
from serving import RunningServer, make_model, running

# Each program imports a client and waits for complete answers of a small model, minutes in all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: On the server that `make serve` starts.
ON_SHIPPED_MODELS = (
    "openai/parsing.py", "openai/parsing_stream.py", "anthropic/messages.py", "anthropic/messages_stream.py",
    "anthropic/structured_outputs_streaming.py", "anthropic/thinking.py",
)  # fmt: skip
#: A small model occasionally writes an endless string, for which these clients raise an error.
_ATTEMPTS = 4
#: On a scripted model, and their output. `quire-mini` follows their schemas, but does not finish: an
#: `explanation` takes all 2,030 tokens left of its context, a price is nines up to max_tokens. The answer is marked
#: incomplete, which these clients ignore, so they fail on half a string.
_SOLUTION = {"steps": [{"explanation": "Subtract 31.", "output": "8x = -29"}], "final_answer": "x = -29/8"}
_ORDER = {"product_name": "Green Tea", "price": 5.5, "quantity": 2}
ON_AN_ANSWERING_MODEL = {
    "openai/responses/streaming.py": (_SOLUTION, "final_answer='x = -29/8'"),
    "openai/responses/structured_outputs.py": (_SOLUTION, "answer:  x = -29/8"),
    "anthropic/structured_outputs.py": (_ORDER, "product_name='Green Tea' price=5.5 quantity=2"),
}
_QUERY = {
    "table_name": "orders", "columns": ["id", "status"],
    "conditions": [{"column": "id", "operator": "=", "value": 1}], "order_by": "asc",
}  # fmt: skip
_IN_SAN_FRANCISCO = {"location": "San Francisco, CA", "units": "f"}
#: The model's calls, and the program's output.
ON_A_CALLING_MODEL = {
    "openai/parsing_tools.py": (("Query", _QUERY), "Table.orders"),
    "openai/parsing_tools_stream.py": (("get_weather", {"city": "New York", "country": "US"}), "GetWeather("),
    "openai/responses/streaming_tools.py": (("Query", _QUERY), "response.completed"),
    "openai/responses/structured_outputs_tools.py": (("Query", _QUERY), "table name: Table.orders"),
    "anthropic/tools.py": (("get_weather", {"location": "SF"}), "Final response"),
    "anthropic/tools_stream.py": (("get_weather", {"location": "SF"}), "snapshot: {'location': 'SF'}"),
    "anthropic/tools_runner.py": (("get_weather", _IN_SAN_FRANCISCO), "Fetching weather for San Francisco, CA in f"),
}
SCRIPT = Script(
    after_results="It is 73 degrees.",
    texts=[json.dumps(arguments) for (_, arguments), _ in ON_A_CALLING_MODEL.values()],
)
ANSWER = Script()


def path_of(example: str) -> Path:
    client, _, name = example.partition("/")
    directory = os.environ.get(f"{client.upper()}_EXAMPLES")
    if directory is None:
        pytest.skip(f"{client.upper()}_EXAMPLES names no checkout of the client's examples")
    if not (path := Path(directory) / name).exists():
        pytest.skip(f"this checkout has no {name}")
    return path


@pytest.mark.parametrize("example", ON_SHIPPED_MODELS)
def test_an_example_runs_on_the_models_that_ship(served: str, example: str) -> None:
    path, failures = path_of(example), []
    for _ in range(_ATTEMPTS):
        try:
            assert run_program(path, served)
            return
        except AssertionError as error:
            failures.append(str(error)[-400:])
            print(example, failures[-1])
    pytest.fail("\n\n".join(failures))


@pytest.fixture(scope="module")
def calling() -> Iterator[RunningServer]:
    model = replace(make_model(start=SCRIPT, chat_template=QWEN), aliases=("gpt-4o-2024-08-06", "claude-sonnet-5"))
    with running(model) as server:
        yield server


@pytest.fixture(scope="module")
def answering() -> Iterator[RunningServer]:
    """Answers follow schemas token by token, so the tokenizer is the usual one."""
    model = replace(make_model(start=ANSWER, chat_template=QWEN), aliases=("gpt-4o-2024-08-06", "claude-sonnet-5"))
    with running(model) as server:
        yield server


@pytest.mark.parametrize("example", ON_AN_ANSWERING_MODEL)
def test_an_example_runs_on_a_model_that_ends_its_answer(answering: RunningServer, example: str) -> None:
    answer, shown = ON_AN_ANSWERING_MODEL[example]
    ANSWER.says = json.dumps(answer)
    assert shown in run_program(path_of(example), answering.url)


@pytest.mark.parametrize("example", ON_A_CALLING_MODEL)
def test_an_example_runs_on_a_model_that_calls(calling: RunningServer, example: str) -> None:
    (name, arguments), shown = ON_A_CALLING_MODEL[example]
    SCRIPT.says = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    assert shown in run_program(path_of(example), calling.url)
