"""Grammars of text with calls of strict tools, in every family's notation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher

from quire import StructuredOutputsParams
from quire.server.tools.answer_reader import AnswerForm, AnswerReader, ParsedAnswer
from quire.server.tools.families import REASONING_PARSERS, TOOL_PARSERS
from quire.server.tools.grammar import calls_grammar, text_grammar
from quire.structured.grammar import compile_grammar, grammar_text
from quire.structured.vocabulary import CALL_MARKERS, byte_vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"$ref": "#/$defs/unit"},
        "sky": {"type": "string", "enum": ["grey", "VALUE"]},
        "days/n": {"type": "integer"},
    },
    "required": ["city"],
    "$defs": {"unit": {"type": "integer", "enum": [7, 8]}},
}
FUNCTIONS = [{"name": "KEY_ALL", "strict": True, "parameters": SCHEMA}, {"name": "now"}]
CITY, ALL = {"city": "B"}, {"city": "B\nC", "unit": 7, "sky": "VALUE", "days/n": 2}
#: By parser: texts, the calls in them, and beginnings whose last character is forbidden.
TEXTS: dict[str, tuple[dict[str, list[tuple[str, Any]]], list[str]]] = {
    "deepseek_v31": (
        {
            'Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>KEY_ALL<｜tool▁sep｜>{"city": "B"}<｜tool▁call▁end｜>'
            "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>": [
                ("KEY_ALL", CITY), ("now", {}),
            ],
        },
        ['<｜tool▁call▁begin｜>KEY_ALL<｜tool▁sep｜>{"u', "<｜tool▁call▁begin｜>x"],
    ),
    "functiongemma": (
        {"<start_function_call>call:KEY_ALL{city:<escape>B<escape>}<end_function_call>": [("KEY_ALL", CITY)]},
        ["<start_function_call>call:KEY_ALL{u"],
    ),
    "gemma4": (
        {
            'Hm.<|tool_call>call:KEY_ALL{city:<|"|>B\nC<|"|>,unit:7,sky:<|"|>VALUE<|"|>,days/n:2}<tool_call|> So.'
            "<|tool_call>call:now{x:1}<tool_call|>": [("KEY_ALL", ALL), ("now", {"x": 1})],
        },
        ['<|tool_call>call:KEY_ALL{city:<|"|>B<|"|>,unit:9', "<|tool_call>call:KEY_ALL{city:1", "<|tool_call> "],
    ),
    "glm45": (
        {
            "Hm.<tool_call>KEY_ALL\n<arg_key>city</arg_key>\n<arg_value>B\nC</arg_value>\n<arg_key>unit</arg_key>\n"
            "<arg_value>7</arg_value>\n<arg_key>sky</arg_key>\n<arg_value>VALUE</arg_value>\n<arg_key>days/n</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>": [("KEY_ALL", ALL), ("now", {})],
        },
        ["<tool_call>KEY_ALL<arg_key>city</arg_key><arg_value>B</arg_value><arg_key>unit</arg_key><arg_value>x"],
    ),
    "granite": (
        {'<|tool_call|>[{"name": "KEY_ALL", "arguments": {"city": "B"}}, {"name": "now", "arguments": {}}]': [
            ("KEY_ALL", CITY), ("now", {}),
        ]},
        ['<|tool_call|>[{"name": "KEY_ALL", "arguments": {"u'],
    ),
    "hermes": (
        {
            'Hm. <tool_call>\n{"name": "KEY_ALL", "arguments": '
            '{"city": "B\\nC", "unit": 7, "sky": "VALUE", "days/n": 2}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {"x": 1}}\n</tool_call> So.': [
                ("KEY_ALL", ALL), ("now", {"x": 1}),
            ],
        },
        ['<tool_call>{"name": "KEY_ALL", "arguments": {}', '<tool_call>{"name": "x', "<tool_call>x"],
    ),
    "lfm2": (
        {'Hm.<|tool_call_start|>[KEY_ALL(city="B"), now()]<|tool_call_end|>': [("KEY_ALL", CITY), ("now", {})]},
        ["<|tool_call_start|>[KEY_ALL(u", '<|tool_call_start|>[KEY_ALL(city="B", unit=9'],
    ),
    "llama3": (
        {
            '{"name": "KEY_ALL", "parameters": {"city": "B"}}; {"name": "now", "parameters": {}}': [
                ("KEY_ALL", CITY), ("now", {}),
            ],
            'Hm.<|python_tag|>{"name": "now", "parameters": {"x": 1}}': [("now", {"x": 1})],
            "A {": [],
        },
        ['{"name": "KEY_ALL", "parameters": {}', "{1", '<|python_tag|>{"name": "x'],
    ),
    "llama4_pythonic": (
        {
            '[KEY_ALL(city="B"), now(x=1)]': [("KEY_ALL", CITY), ("now", {"x": 1})],
            'Hm.<|python_start|>[KEY_ALL(city="B")]<|python_end|>': [("KEY_ALL", CITY)],
            "A [b](c)": [],
        },
        ["[KEY_ALL(u", "[b", "<|python_start|>[x"],
    ),
    "mistral": (
        {
            'Hm.[TOOL_CALLS]KEY_ALL[ARGS]{"city": "B"}[TOOL_CALLS]now[ARGS]{}': [("KEY_ALL", CITY), ("now", {})],
            '[TOOL_CALLS] [{"name": "KEY_ALL", "arguments": {"city": "B"}}]': [("KEY_ALL", CITY)],
        },
        ['[TOOL_CALLS]KEY_ALL[ARGS]{"u', '[TOOL_CALLS][{"name": "KEY_ALL", "arguments": {}'],
    ),
    "olmo3": (
        {'<function_calls>KEY_ALL(city="B")\nnow()</function_calls>': [("KEY_ALL", CITY), ("now", {})]},
        ["<function_calls>KEY_ALL(u"],
    ),
    "openai": (
        {
            '<|channel|>commentary to=functions.KEY_ALL <|constrain|>json<|message|>{"city": "B"}': [("KEY_ALL", CITY)],
            '<|start|>assistant to=functions.KEY_ALL<|channel|>commentary json<|message|>{"city": "B"}': [
                ("KEY_ALL", CITY),
            ],
            "<|channel|>final<|message|>A {": [],
        },
        ['<|channel|>commentary to=functions.KEY_ALL<|message|>{"u', "<|channel|>commentary to=functions.x"],
    ),
    "qwen3_coder": (
        {
            "Hm.\n<tool_call>\n<function=KEY_ALL>\n<parameter=city>\nB\nC\n</parameter>\n<parameter=unit>\n7\n</parameter>\n"
            "<parameter=sky>\nVALUE\n</parameter>\n<parameter=days/n>\n2\n</parameter>\n</function>\n</tool_call>": [
                ("KEY_ALL", ALL),
            ],
            "<tool_call>\n<function=now>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>": [
                ("now", {"x": 1}),
            ],
        },
        ["<function=KEY_ALL>\n<parameter=u", "<function=KEY_ALL>\n</", "<function=x"],
    ),
}  # fmt: skip


def matcher(text: str) -> LLMatcher:
    params = StructuredOutputsParams(alternative=text)
    return compile_grammar(grammar_text(params), byte_vocabulary())


def num_valid(text: str, grammar: str) -> int:
    return matcher(grammar).validate_tokens(list(text.encode()))


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_strict_tools_leave_text_free_and_arguments_as_their_schema_says(name: str) -> None:
    parser = TOOL_PARSERS[name]
    markers = REASONING_PARSERS["openai_gptoss" if name == "openai" else "think"]
    grammar = text_grammar(parser, FUNCTIONS, markers)
    schemas = {function["name"]: function.get("parameters", {}) for function in FUNCTIONS}
    for text, calls in {**TEXTS[name][0], "": [], "So a < b, <tool and\n[x] {": []}.items():
        walked = matcher(grammar)
        assert walked.validate_tokens(list(text.encode())) == len(text.encode()), text
        walked.consume_tokens(list(text.encode()))
        assert walked.compute_logit_bias()[256], "it may end"
        answer = ParsedAnswer.of(AnswerReader(AnswerForm(tools=parser, schemas=schemas)).read(text))
        assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == calls
    thought = f"{markers.opening}{parser.trigger}?{markers.closing}\n"
    for text in TEXTS[name][1]:
        assert num_valid(text, grammar) == len(text.encode()) - 1, text
        assert num_valid(thought + text, grammar) == len((thought + text).encode()) - 1, text


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_calls_in_place_of_an_answer_begin_at_once(name: str) -> None:
    text = next(iter(TEXTS[name][0])).removeprefix("Hm.").strip()
    grammar = "start: alternative\n" + calls_grammar(TOOL_PARSERS[name], FUNCTIONS)
    assert num_valid(text, grammar) > len(TOOL_PARSERS[name].trigger)
    assert not num_valid("So", grammar)


def test_every_family_is_covered() -> None:
    assert {TOOL_PARSERS[name] for name in TEXTS} == set(TOOL_PARSERS.values())
    known = {marker.encode() for parser in TOOL_PARSERS.values() for marker in parser.markers}
    known |= {b"<think>", b"</think>", b"[THINK]", b"[/THINK]"}
    assert known <= CALL_MARKERS, "special tokens that grammars with calls allow"
