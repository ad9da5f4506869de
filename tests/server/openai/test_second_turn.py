"""An agent's second turn: histories as clients send them, with the shapes of widely used models' templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, SMALL, RunningServer, make_model, running

TEMPLATES = {
    text.partition("\n")[0].partition(":")[0]: text.partition("\n")[2].strip()
    for file in sorted((Path(__file__).parents[2] / "text" / "templates").glob("*.jinja"))
    for text in file.read_text().split("=== ")[1:]
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Weather.", "parameters": PARAMETERS}}
BARE = {"type": "function", "function": {"name": "look_up"}}
ASKED = {"role": "user", "content": "How is Zürich?"}


def call(city: str, call_id: str = "call_Ab3dE6gH9jK2mN5p") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": json.dumps({"at": city})}}


def called(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "refusal": None, "tool_calls": list(calls)}


def result(text: str, call_id: str = "call_Ab3dE6gH9jK2mN5p") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    settings = ServerSettings(trust_request_chat_template=True)
    with running(make_model(replace(SMALL, num_kv_blocks=512, max_model_len=2048)), settings=settings) as server:
        yield server


def prompt_of(server: RunningServer, model: str, *messages: dict[str, Any], **body: Any) -> str:
    answer = server.post("/apply-template", messages=messages, chat_template=TEMPLATES[model], **body)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["prompt"]
    return text


def assert_shows(text: str, *words: str) -> None:
    """The words come in this order."""
    position = 0
    for word in words:
        assert word in text[position:], f"{word!r} is not in its place in {text!r}"
        position = text.index(word, position) + len(word)
    assert "None" not in text
    assert "{'" not in text, "an object is spelt as Python does"


def test_there_are_shapes_of_sixty_models() -> None:
    assert len(TEMPLATES) >= 60


@pytest.mark.parametrize("model", TEMPLATES)
@pytest.mark.parametrize("tool", [TOOL, BARE], ids=["described", "bare"])
def test_a_call_without_text_and_its_result_are_shown(server: RunningServer, model: str, tool: dict[str, Any]) -> None:
    history = [ASKED, called(call("Bern")), result("sunny & warm")]
    text = prompt_of(server, model, *history, tools=[tool])
    assert_shows(text, "How is Zürich?", "look_up", "Bern", "sunny & warm")
    assert_shows(prompt_of(server, model, *history), "How is Zürich?", "look_up", "Bern", "sunny & warm")


@pytest.mark.parametrize("model", TEMPLATES)
def test_two_calls_at_once_are_shown_with_both_results(server: RunningServer, model: str) -> None:
    calls = called(call("Bern", "call_000000000000000001"), call("Rome", "call_000000000000000002"))
    results = result("sunny", "call_000000000000000001"), result("rainy", "call_000000000000000002")
    text = prompt_of(server, model, ASKED, calls, *results, tools=[TOOL])
    for words in (("Bern", "sunny"), ("Rome", "rainy"), ("Bern", "Rome"), ("sunny", "rainy")):
        assert_shows(text, "How is Zürich?", *words)


@pytest.mark.parametrize("model", TEMPLATES)
def test_a_conversation_goes_on_behind_calls_with_text(server: RunningServer, model: str) -> None:
    """Instructions, words beside a call, a question behind a result, and two questions in a row."""
    system = {"role": "system", "content": "Answer in verse."}
    history = [
        system,
        ASKED,
        called(call("Bern"), content="I look."),
        result("sunny"),
        {"role": "user", "content": "So?"},
    ]
    text = prompt_of(server, model, *history, {"role": "user", "content": "And Rome?"}, tools=[TOOL])
    assert_shows(text, "How is Zürich?", "look_up", "Bern", "sunny", "So?", "And Rome?")
    assert "Answer in verse." in text


@pytest.mark.parametrize("model", TEMPLATES)
def test_a_call_that_was_cut_short_goes_on(server: RunningServer, model: str) -> None:
    """The template shows the arguments up to the cut."""
    cut = call("x")
    cut["function"]["arguments"] = '{"at": "Bern", "days": [1, "unfin'
    history = [ASKED, called(cut), result("the call was cut short")]
    assert_shows(prompt_of(server, model, *history, tools=[TOOL]), "look_up", "Bern", "the call was cut short")


def test_qwen_coder_calls_in_tags_and_reads_them_back() -> None:
    """Calls of its own accord, whole and streamed, and forced ones."""
    says = "I look.\n<tool_call>\n<function=look_up>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>"
    template = TEMPLATES["Qwen3-Coder"]
    script = Script(says)
    with running(make_model(start=script, chat_template=template)) as server, server.client() as client:
        asked: Any = {"model": MODEL, "messages": [ASKED], "tools": [TOOL]}
        message = client.chat.completions.create(**asked).choices[0].message
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0].message
        for each in (message, streamed):
            assert each.content == "I look."
            assert json.loads(each.tool_calls[0].function.arguments) == {"city": "Bern"}  # type: ignore[index, union-attr]
        history = [ASKED, message.to_dict(), result("sunny", message.tool_calls[0].id)]  # type: ignore[index]
        text = server.post("/apply-template", messages=history, tools=[TOOL]).json()["prompt"]
        assert "<function=look_up>\n<parameter=city>Bern</parameter>" in text
        script.says = None
        city = {"type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]}
        tool = {"type": "function", "function": {"name": "look_up", "parameters": city}}
        forced = client.chat.completions.create(**{**asked, "tools": [tool]}, tool_choice="required", max_tokens=900)
        assert json.loads(forced.choices[0].message.tool_calls[0].function.arguments) == {"city": "Bern"}


def test_tools_of_other_types_are_left_out_of_a_list_with_functions(server: RunningServer) -> None:
    """A list without any function is refused as before, with the type's name."""
    options = {"chat_template": TEMPLATES["Qwen2.5"], "messages": [ASKED], "max_tokens": 1}
    custom = {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}
    alone = server.chat(**options, tools=[TOOL]).json()["usage"]["prompt_tokens"]
    beside = server.chat(**options, tools=[custom, TOOL, {"type": "web_search"}])
    assert beside.json()["usage"]["prompt_tokens"] == alone, beside.text
    assert server.chat(**options, tools=[custom]).json()["error"]["param"] == "tools[0].type"
    item = {"type": "function", **TOOL["function"]}
    tools = [{"type": "web_search"}, item, {"type": "custom", "name": "patch"}]
    answer = server.post("/v1/responses", input="Hello", tools=tools, max_output_tokens=1)
    assert [tool["type"] for tool in answer.json()["tools"]] == ["function"], answer.text
    own = {"name": "look_up", "input_schema": PARAMETERS}
    built_in = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    body = {"max_tokens": 1, "messages": [ASKED], "tools": [built_in, own]}
    newer = {"context_management": {"edits": []}, "mcp_servers": [], "speed": "standard", "inference_geo": None}
    answer = server.post("/v1/messages", **body, **newer)
    assert answer.status_code == 200, answer.text


def test_allowed_tools_leave_out_the_others(server: RunningServer) -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "maxProperties": 0}}}
    named = {"type": "function", "function": {"name": "other"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    body = {"messages": [ASKED], "tools": [TOOL, other], "max_tokens": 100, "parallel_tool_calls": False}
    called = server.chat(**body, tool_choice=choice).json()["choices"][0]["message"]["tool_calls"]
    assert [each["function"]["name"] for each in called] == ["other"]
    choice["allowed_tools"] = {"mode": "required", "tools": []}
    assert server.chat(**body, tool_choice=choice).json()["error"]["param"] == "tool_choice"
    functions = [{"type": "function", **each["function"]} for each in (TOOL, other)]
    wanted = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    answer = server.post("/v1/responses", input="Hello", tools=functions, tool_choice=wanted, max_output_tokens=100)
    assert answer.json()["output"][0]["name"] == "other", answer.text
    assert answer.json()["tool_choice"] == wanted


ANSWER = {"type": "object", "properties": {"sky": {"enum": ["clear", "grey"]}}, "required": ["sky"]}
#: Families whose calls are read: what the model says -> its answer, or the arguments of its call.
SAID = {
    "Qwen2.5": '<tool_call>\n{"name": "look_up", "arguments": {"city": "Bern"}}\n</tool_call>',
    "Qwen3-Coder": "<tool_call>\n<function=look_up>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
    "Llama 3.2 3B": '{"name": "look_up", "arguments": {"city": "Bern"}}',
    "Mistral 7B v0.3": '[TOOL_CALLS][{"name": "look_up", "arguments": {"city": "Bern"}}]',
    "Mistral Small 3.1": '[TOOL_CALLS]look_up[ARGS]{"city": "Bern"}',
}


MARKS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"]


@pytest.mark.parametrize(
    ("model", "specials"),
    [
        ("Qwen2.5", []),
        ("Mistral Small 3.1", MARKS),
        *(pytest.param(model, MARKS, marks=pytest.mark.slow) for model in SAID if model != "Mistral Small 3.1"),
    ],
)
def test_a_model_may_call_in_place_of_an_answer_in_the_response_format(model: str, specials: list[str]) -> None:
    script = Script(specials=specials)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
    with running(make_model(start=script, chat_template=TEMPLATES[model])) as server:

        def ask(says: str | None) -> dict[str, Any]:
            script.says = says
            answer = server.chat(messages=[ASKED], tools=[TOOL], response_format=form, max_tokens=400)
            assert answer.status_code == 200, answer.text
            message: dict[str, Any] = answer.json()["choices"][0]["message"]
            return message

        (called,) = ask(SAID[model])["tool_calls"]
        assert (called["function"]["name"], json.loads(called["function"]["arguments"])) == (
            "look_up",
            {"city": "Bern"},
        )
        assert ask('{"sky": "clear"}')["content"] == '{"sky": "clear"}'
        wild = ask("Well, it is clear.")  # which the format forbids
        assert wild.get("tool_calls") or json.loads(wild["content"])["sky"] in ("clear", "grey")
