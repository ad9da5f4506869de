"""Thinking models reason before structured output and forced calls, on all three APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import pytest

from family_templates import QWEN
from parameters import in_turns, quick
from scripted import Script
from serving import MODEL, RunningServer, make_model, running

#: A text that no grammar here allows, with half a marker.
THOUGHT = 'Hm: {"size": 1} or [] </thin, é?'
SHIRT = '{"size": "S"}'
SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["S"]}},
    "required": ["size"],
    "additionalProperties": False,
}
CALL = f'[{{"name": "clothes", "arguments": {SHIRT}}}]'
TOOL = {"type": "function", "function": {"name": "clothes", "parameters": SCHEMA}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
OPENED = {"chat_template_kwargs": {"forced_thinking": True}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
#: How the model reasons: where the prompt opens it, and where the model does. "" is an answer without it.
STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "opened by the prompt": ("", OPENED), "opened by the model": ("<think>\n", {})
}  # fmt: skip
#: Fields, an answer in their grammar, and a pattern for all answers in it.
STRUCTURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a format": ({"response_format": FORMAT}, SHIRT, r'\{\s*"size"\s*:\s*"S"\s*\}'),
    "an object": ({"response_format": {"type": "json_object"}}, "{}", r"\{(?s:.*)\}"),
    "a choice": ({"guided_choice": [" yes", " no"]}, " no", " yes| no"),
    "a regex": ({"structured_outputs": {"regex": "\\n[ab]{2,4}"}}, "\nab", "\n[ab]{2,4}"),
    "a grammar": ({"structured_outputs": {"grammar": 'root ::= "[" "<a>"* "]"'}}, "[<a>]", r"\[(<a>)*\]"),
}
SCRIPTS = {"one token": Script(specials=["<think>", "</think>"]), "pieces": Script()}


@pytest.fixture(scope="module", params=SCRIPTS)
def thinker(request: pytest.FixtureRequest) -> Iterator[tuple[RunningServer, Script]]:
    """A model whose markers are one token each, or several."""
    with running(make_model(start=SCRIPTS[request.param], chat_template=QWEN)) as server:
        yield server, SCRIPTS[request.param]


Thinker = tuple[RunningServer, Script]
CHOICES: dict[str, Any] = {
    "any": "required", "named": {"type": "function", "function": {"name": "clothes"}}
}  # fmt: skip
each_structure = pytest.mark.parametrize(
    ("thinker", "structure"),
    quick([("one token", "a format"), ("pieces", "a regex")], product(SCRIPTS, STRUCTURES)),
    indirect=["thinker"],
)


def ask(thinker: Thinker, says: str | None, **body: Any) -> dict[str, Any]:
    """Return the first choice, which a stream repeats."""
    server, script = thinker
    script.says = says
    asked = {"max_tokens": 300, "seed": 1, **body}
    answer = server.chat(**asked)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    lines = server.chat(**asked, stream=True).text.splitlines()
    chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    for name in ("content", "reasoning", "reasoning_content"):
        streamed = "".join(chunk["delta"].get(name) or "" for chunk in chunks)
        assert streamed == (choice["message"].get(name) or "")
    assert chunks[-1]["finish_reason"] == choice["finish_reason"]
    return choice


@pytest.mark.parametrize(
    ("thinker", "structure", "start"),
    quick(zip(cycle(SCRIPTS), STRUCTURES, cycle(reversed(STARTS))), product(SCRIPTS, STRUCTURES, STARTS)),
    indirect=["thinker"],
)
def test_a_model_reasons_before_structured_output(thinker: Thinker, structure: str, start: str) -> None:
    (opening, how), (fields, answer, _) = STARTS[start], STRUCTURES[structure]
    choice = ask(thinker, f"{opening}{THOUGHT}</think>{answer}", **fields, **how)
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == answer, "blanks included"
    assert choice["message"]["reasoning"] == choice["message"]["reasoning_content"] == THOUGHT


@pytest.mark.parametrize(
    ("thinker", "choice", "start"),
    quick(zip(SCRIPTS, CHOICES, STARTS, strict=True), product(SCRIPTS, CHOICES, STARTS)),
    indirect=["thinker"],
)
def test_a_model_reasons_before_a_forced_call(thinker: Thinker, choice: str, start: str) -> None:
    opening, how = STARTS[start]
    body = {"tools": [TOOL], "tool_choice": CHOICES[choice], **how}
    found = ask(thinker, f"{opening}{THOUGHT}</think>{CALL}", **body)
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    assert found["message"]["reasoning"] == THOUGHT
    (call,) = found["message"]["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("clothes", SHIRT)


def test_a_model_reasons_before_a_format_or_a_call_in_its_place(thinker: Thinker) -> None:
    call = f'<tool_call>\n{{"name": "clothes", "arguments": {SHIRT}}}\n</tool_call>'
    body = {"response_format": FORMAT, "tools": [TOOL], **OPENED}
    found = ask(thinker, f"{THOUGHT}</think>{call}", **body)
    assert (found["message"]["reasoning"], found["message"]["content"]) == (THOUGHT, None)
    assert found["message"]["tool_calls"][0]["function"] == {"name": "clothes", "arguments": SHIRT}
    found = ask(thinker, f"{THOUGHT}</think>{SHIRT}", **body)
    assert (found["message"]["reasoning"], found["message"]["content"]) == (THOUGHT, SHIRT)


@each_structure
def test_no_reasoning_leaves_the_grammar(thinker: Thinker, structure: str) -> None:
    """The model ends within its reasoning, or writes no answer in the language: it cannot."""
    fields, _, pattern = STRUCTURES[structure]
    for says in ("Hm.</think>No.", "Hm.</think>\n\n</think> No.", "Hm.</think>", "Hm.</think><think>No"):
        message = ask(thinker, says, **fields, **OPENED)["message"]
        assert message["reasoning"] == "Hm."
        assert re.fullmatch(pattern, message["content"]), message
    for body in (OPENED, {}):
        found = ask(thinker, "<think>I end here.", **fields, **body, max_tokens=40)
        assert found["finish_reason"] == "length", "no end within reasoning"
        assert found["message"]["content"] is None
        assert "I end here." in found["message"]["reasoning"]


@each_structure
def test_without_thinking_the_grammar_holds_from_the_first_token(thinker: Thinker, structure: str) -> None:
    fields, _, pattern = STRUCTURES[structure]
    prefilled = [{"role": "user", "content": "Size?"}, {"role": "assistant", "content": "It is "}]
    for off in (OFF, {"reasoning_effort": "none"}, {"messages": prefilled, "continue_final_message": True}):
        message = ask(thinker, f"<think>{THOUGHT}</think>", **fields, **off)["message"]
        assert "reasoning" not in message
        assert re.fullmatch(pattern, message["content"]), message
    (server, script), (_, answer, _) = thinker, STRUCTURES[structure]
    script.says = answer
    assert "reasoning" not in ask(thinker, answer, **fields)["message"], "the model may leave it out"
    whole = server.complete(prompt="<think>", seed=1, max_tokens=300, **fields).json()["choices"][0]["text"]
    assert whole == answer, "a plain prompt has no template"


def test_a_client_cannot_open_reasoning(thinker: Thinker) -> None:
    server, script = thinker
    wanted = {"regex": "[ab]{2,4}", "reasoning": ["", "!"]}
    assert server.chat(structured_outputs=wanted).status_code == 400
    script.says = f"{THOUGHT}</think>No."
    for question in ("<think>", "<think>\n", "</think><think>"):
        body = {"messages": [{"role": "user", "content": question}], "guided_regex": "[ab]{2,4}", "seed": 1}
        message = server.chat(**body, **OFF, max_tokens=50).json()["choices"][0]["message"]
        assert re.fullmatch("[ab]{2,4}", message["content"])
        assert "reasoning" not in message


def test_samples_are_counted_and_scored(thinker: Thinker) -> None:
    server, script = thinker
    script.says = f"{THOUGHT}</think>{SHIRT}"
    answer = server.chat(response_format=FORMAT, **OPENED, n=2, logprobs=True, max_tokens=300).json()
    for choice in answer["choices"]:
        assert (choice["message"]["content"], choice["message"]["reasoning"]) == (SHIRT, THOUGHT)
        text = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
        assert text.decode().startswith(script.says)
    usage = answer["usage"]
    thought = server.post("/tokenize", prompt=THOUGHT, add_special_tokens=False).json()["count"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] <= 2 * thought
    hidden = server.chat(response_format=FORMAT, **OPENED, max_tokens=300, include_reasoning=False).json()
    assert hidden["choices"][0]["message"] == {"role": "assistant", "content": SHIRT, "refusal": None}


@pytest.mark.parametrize(("thinker", "start"), in_turns(list(SCRIPTS), list(STARTS)), indirect=["thinker"])
def test_responses_and_messages_reason_first(thinker: Thinker, start: str) -> None:
    server, script = thinker
    opening, how = STARTS[start]
    schema = {"type": "json_schema", "name": "it", "schema": SCHEMA}
    own = {"type": "function", **TOOL["function"]}
    theirs = {"name": "clothes", "input_schema": SCHEMA}
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Size?"}],
        "max_tokens": 300,
        **how,
    }

    script.says = f"{opening}{THOUGHT}</think>{SHIRT}"
    answer = server.post("/v1/responses", input="Size?", text={"format": schema}, **how).json()
    reasoning, message = answer["output"]
    assert (reasoning["content"][0]["text"], message["content"][0]["text"]) == (THOUGHT, SHIRT)
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    body = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    thinking, text = server.post("/v1/messages", **asked, **body).json()["content"]
    assert (thinking["thinking"], text["text"]) == (THOUGHT, SHIRT)

    script.says = f"{opening}{THOUGHT}</think>{CALL}"
    answer = server.post("/v1/responses", input="Size?", tools=[own], tool_choice="required", **how).json()
    reasoning, call = answer["output"]
    assert (reasoning["content"][0]["text"], call["name"], call["arguments"]) == (THOUGHT, "clothes", SHIRT)
    answer = server.post("/v1/messages", **asked, tools=[theirs], tool_choice={"type": "any"}).json()
    thinking, call = answer["content"]
    assert (thinking["thinking"], call["input"], answer["stop_reason"]) == (THOUGHT, {"size": "S"}, "tool_use")

    script.says = f"{opening}I think and think."
    asked["max_tokens"] = 25
    answer = server.post("/v1/responses", input="Size?", text={"format": schema}, **how, max_output_tokens=25).json()
    assert (answer["status"], [item["type"] for item in answer["output"]]) == ("incomplete", ["reasoning"])
    answer = server.post("/v1/messages", **asked, **body).json()
    assert (answer["stop_reason"], [block["type"] for block in answer["content"]]) == ("max_tokens", ["thinking"])
