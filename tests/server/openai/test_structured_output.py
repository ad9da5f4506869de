"""Structured output over HTTP: all request forms, the official client's helpers, and hostile schemas."""

from __future__ import annotations

import json
import re
import threading
from typing import Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

from serving import MODEL, RunningServer

QUESTION: Any = [{"role": "user", "content": "Hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= "<" ("a" | "b")* ">"'


class Person(BaseModel):
    name: str = Field(max_length=5)
    kind: Literal["cat", "dog"]
    friends: list[Literal["x", "y"]] = Field(max_length=2)


def is_valid(text: str) -> bool:
    return bool(jsonschema_rs.validator_for(SCHEMA).is_valid(json.loads(text)))


@pytest.mark.parametrize(
    ("field", "is_in"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}}, is_valid),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_valid),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, is_valid),
        ({"json_schema": SCHEMA}, is_valid),
        ({"grammar": GRAMMAR}, re.compile("<[ab]*>").fullmatch),
        ({"structured_outputs": {"json": SCHEMA}}, is_valid),
        ({"structured_outputs": {"json": json.dumps(SCHEMA), "disable_any_whitespace": True}}, is_valid),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"}, is_valid),
        ({"structured_outputs": {"regex": "[ab]{2,4}c"}}, re.compile("[ab]{2,4}c").fullmatch),
        ({"guided_regex": "[ab]{2,4}c"}, re.compile("[ab]{2,4}c").fullmatch),
        ({"structured_outputs": {"choice": ["red", "green"]}}, {"red", "green"}.__contains__),
        ({"guided_choice": ["red", "green"]}, {"red", "green"}.__contains__),
        ({"structured_outputs": {"grammar": GRAMMAR}}, re.compile("<[ab]*>").fullmatch),
        ({"guided_grammar": 'start: "<" /[ab]*/ ">"'}, re.compile("<[ab]*>").fullmatch),
    ],
)
def test_an_answer_is_in_the_language_that_was_asked_for(server: RunningServer, field: Any, is_in: Any) -> None:
    asked = {"max_tokens": 100, "seed": 1, **field}
    chat, completion = server.chat(**asked), server.complete(n=2, **asked)
    texts = [choice["message"]["content"] for choice in chat.json()["choices"]]
    texts += [choice["text"] for choice in completion.json()["choices"]]
    assert len(texts) == 3
    assert all(is_in(text) for text in texts), texts


def test_the_client_parses_an_answer_into_a_model(server: RunningServer) -> None:
    with server.client() as client:
        answer = client.chat.completions.parse(
            model=MODEL, messages=QUESTION, response_format=Person, max_tokens=200, seed=3
        )
        assert isinstance(answer.choices[0].message.parsed, Person)
        asked: Any = {"model": MODEL, "messages": QUESTION, "response_format": Person, "max_tokens": 200, "seed": 3}
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion()
    assert streamed.choices[0].message.parsed == answer.choices[0].message.parsed


def test_a_json_object_is_one(server: RunningServer) -> None:
    with server.client() as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, response_format={"type": "json_object"}, max_tokens=60, temperature=0
        )
    (choice,) = answer.choices
    assert (choice.message.content or "").startswith("{")
    assert choice.finish_reason == "length" or isinstance(json.loads(choice.message.content or ""), dict)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "integer", "multipleOf": 1_000_003}, "too complex"),
        pytest.param(
            {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}c"} for i in range(20, 32)]},
            "too complex",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name_while_others_go_on(
    server: RunningServer, schema: Any, word: str
) -> None:
    refusals = []

    def ask() -> None:
        about = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        refusals.append(server.chat(response_format=about))

    asking = threading.Thread(target=ask)
    with server.client() as client:
        endless: Any = {"ignore_eos": True}
        stream = client.completions.create(model=MODEL, prompt="Hello", max_tokens=100, stream=True, extra_body=endless)
        next(iter(stream))
        asking.start()
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    asking.join()
    (answer,) = refusals
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "response_format"
    assert word in error["message"]
