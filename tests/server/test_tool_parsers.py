"""Outputs of each model family become reasoning, content and calls, however the text is split."""

from __future__ import annotations

import codecs
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.server.tools.answer_reader import AnswerForm, AnswerReader, ParsedAnswer
from quire.server.tools.families import (
    REASONING_PARSERS,
    ArrayParser,
    ForcedParser,
    HermesParser,
    LlamaParser,
    MistralParser,
    forced_calls_schema,
    reasoning_markers,
    tool_parser,
)
from quire.server.tools.harmony import HarmonyParser
from quire.server.tools.literals import FunctionGemmaParser, GemmaParser, Lfm2Parser, Llama4Parser, OlmoParser
from quire.server.tools.parser import CallStart, Event, ToolParser, merge
from quire.server.tools.tagged import DeepSeekParser, GlmParser, QwenCoderParser

THINK = REASONING_PARSERS["think"]
PARIS, NIGHT = ("weather", {"city": "Paris"}), ("time", {"zone": "Europe/Paris", "at": [1, {"x": "}]"}]})

#: Model outputs by family: parser, text, reasoning, content, calls (name, arguments).
RECORDED: dict[str, tuple[type[ToolParser], str, str, str, list[tuple[str, Any]]]] = {
    "hermes": (
        HermesParser,
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        "", "", [PARIS],
    ),
    "qwen, after words, two at once": (
        HermesParser,
        'I look that up.\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>\n<tool_call>'
        "\n"
        '{"name": "time", "arguments": {"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}}\n</tool_call>',
        "", "I look that up.", [PARIS, NIGHT],
    ),
    "qwen, thinking": (
        HermesParser,
        '<think>\nA <tool_call> would do, I think.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "weather", '
        '"arguments": {"city": "Paris"}}\n</tool_call>',
        "A <tool_call> would do, I think.", "Let me see.", [PARIS],
    ),
    "hermes, arguments first, and a marker in a string": (
        HermesParser,
        '<tool_call>{"arguments": {"text": "</tool_call> \\"\\u00e9 {"}, "name": "say"}</tool_call>',
        "", "", [("say", {"text": '</tool_call> "é {'})],
    ),
    "hermes, arguments as a text": (
        HermesParser,
        '<tool_call>\n{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}\n</tool_call> Done.',
        "", "Done.", [PARIS],
    ),
    "llama 3.1": (
        LlamaParser,
        '<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}',
        "", "", [PARIS],
    ),
    "llama 3.2, without a tag, two": (
        LlamaParser,
        '{"name": "weather", "parameters": {"city": "Paris"}}; '
        '{"name": "time", "parameters": {"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}}',
        "", "", [PARIS, NIGHT],
    ),
    "llama, JSON that is no call": (
        LlamaParser, '{"name": "Paris", "inhabitants": 2}', "", '{"name": "Paris", "inhabitants": 2}', [],
    ),
    "mistral, an array": (
        MistralParser,
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}, '
        '{"name": "time", "arguments": {"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}, "id": "abcdefghi"}]',
        "", "", [PARIS, NIGHT],
    ),
    "mistral, since v11": (
        MistralParser,
        'Well.[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}'
        '[TOOL_CALLS]time[ARGS]{"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}',
        "", "Well.", [PARIS, NIGHT],
    ),
    "qwen3-coder": (
        QwenCoderParser,
        "I look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=time>\n<parameter=zone>\nEurope/Paris\n</parameter>\n<parameter=at>\n"
        '[1, {"x": "}]"}]\n</parameter>\n</function>\n</tool_call>',
        "", "I look.", [PARIS, NIGHT],
    ),
    "qwen3-coder, without a wrapper, ends or arguments": (
        QwenCoderParser,
        "<function=weather>\n<parameter=city>Paris\n</function>\n<tool_call><function=now></function></tool_call>",
        "", "", [PARIS, ("now", {})],
    ),
    "qwen3-coder, code in a text": (
        QwenCoderParser,
        "<tool_call>\n<function=write>\n<parameter=text>\n\n  if a < b:\n    \"</p>\" + 1 # é\n\n</parameter>\n"
        "</function>\n</tool_call>",
        "", "", [("write", {"text": '\n  if a < b:\n    "</p>" + 1 # é\n'})],
    ),
    "glm 4.5, after thoughts": (
        GlmParser,
        "<think>Two.</think>\nI look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "</tool_call>\n<tool_call>time\n<arg_key>zone</arg_key>\n<arg_value>Europe/Paris</arg_value>\n<arg_key>at</arg_key>\n"
        '<arg_value>[1, {"x": "}]"}]</arg_value>\n</tool_call>',
        "Two.", "I look.", [PARIS, NIGHT],
    ),
    "glm 4.7, in one line, and one without arguments": (
        GlmParser,
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call><tool_call>now</tool_call>",
        "", "", [PARIS, ("now", {})],
    ),
    "glm, no call": (GlmParser, "<tool_call>maybe so", "", "<tool_call>maybe so", []),
    "deepseek v3": (
        DeepSeekParser,
        "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n'
        '{"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "", "I look.", [PARIS, NIGHT],
    ),
    "deepseek v3.1": (
        DeepSeekParser,
        '<think>So.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Paris"}'
        '<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "So.", "", [PARIS, NIGHT],
    ),
    "deepseek, no call": (
        DeepSeekParser, "<｜tool▁call▁begin｜>weather in Paris", "", "<｜tool▁call▁begin｜>weather in Paris", [],
    ),
    "gemma 4": (
        GemmaParser,
        'I look.<|tool_call>call:weather{city:<|"|>Paris<|"|>}<tool_call|>'
        '<|tool_call>call:time{zone:<|"|>Europe/Paris<|"|>,at:[1,{x:<|"|>}]<|"|>}]}<tool_call|>',
        "", "I look.", [PARIS, NIGHT],
    ),
    "gemma 4, other values": (
        GemmaParser,
        '<|tool_call>call:f{a:-1.5, b:true,c:null,"d":[ ],e:{},f:"x\\n",g:maybe}<tool_call|>',
        "", "", [("f", {"a": -1.5, "b": True, "c": None, "d": [], "e": {}, "f": "x\n", "g": "maybe"})],
    ),
    "functiongemma": (
        FunctionGemmaParser,
        '<start_function_call>call:say{text:<escape>a "b", {c}\n<escape>}<end_function_call>',
        "", "", [("say", {"text": 'a "b", {c}\n'})],
    ),
    "lfm2": (
        Lfm2Parser,
        "<|tool_call_start|>[weather(city='Paris'), time(zone=\"Europe/Paris\", at=[1, {'x': '}]'}])]"
        "<|tool_call_end|>I look.",
        "", "I look.", [PARIS, NIGHT],
    ),
    "llama 4, bare": (
        Llama4Parser,
        "[weather(city='Paris'), time(at=[1, {'x': '}]'}], zone='Europe/Paris')]",
        "", "", [PARIS, NIGHT],
    ),
    "llama 4, values of python": (
        Llama4Parser,
        r"""<|python_start|>[f(a=None, b=True, c='it\'s', d=(1, 2), e=1e999, g=other)]<|python_end|>""",
        "", "", [("f", {"a": None, "b": True, "c": "it's", "d": [1, 2], "e": "1e999", "g": "other"})],
    ),
    "llama 4, a list that is no call": (
        Llama4Parser, "[Paris](http://x), [f(1)] and [weather]", "", "[Paris](http://x), [f(1)] and [weather]", [],
    ),
    "olmo 3": (
        OlmoParser,
        "<function_calls>weather(city=\"Paris\")\nnow()</function_calls>",
        "", "", [PARIS, ("now", {})],
    ),
    "granite 3": (
        ArrayParser,
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]',
        "", "", [PARIS, ("now", {})],
    ),
    "gpt-oss, one message": (
        HarmonyParser, "<|channel|>final<|message|>Sunny. <|x|>", "", "Sunny. <|x|>", [],
    ),
    "gpt-oss, thoughts, a preamble and two calls": (
        HarmonyParser,
        "<|channel|>analysis<|message|>Weather.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
        '{"city": "Paris"}<|call|><|start|>assistant to=functions.time<|channel|>commentary json<|message|>'
        '{"zone": "Europe/Paris", "at": [1, {"x": "}]"}]}<|call|>',
        "Weather.", "I look.", [PARIS, NIGHT],
    ),
    "gpt-oss, thoughts twice": (
        HarmonyParser,
        "<|channel|>analysis<|message|>One. <|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Done.<|return|>",
        "One. Two.", "Done.", [],
    ),
    "gpt-oss, an unknown function": (
        HarmonyParser,
        "<|channel|>commentary to=functions.other<|message|>{}",
        "", "<|channel|>commentary to=functions.other<|message|>{}", [],
    ),
    "forced": (
        ForcedParser,
        '[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]',
        "", "", [PARIS, ("now", {})],
    ),
    "beyond ASCII": (
        HermesParser,
        '<think>\nZürich…\n</think>\n\nOui ☀.\n'
        '<tool_call>\n{"name": "say", "arguments": {"té": "☀️ 20 °C 🌞"}}\n</tool_call>',
        "Zürich…", "Oui ☀.", [("say", {"té": "☀️ 20 °C 🌞"})],
    ),
    "no arguments": (HermesParser, '<tool_call>{"name": "now"}</tool_call>', "", "", [("now", {})]),
    "no call, with signs of one": (
        HermesParser, "a < b, <tool>, <tool_cal {} </think>\n", "", "a < b, <tool>, <tool_cal {} </think>\n", [],
    ),
    "what is no call is content, word for word": (
        HermesParser,
        '<tool_call>maybe<tool_call>{"name": 1}</tool_call> <tool_call>{"name": "now", "arguments": null}</tool_call>',
        "", '<tool_call>maybe<tool_call>{"name": 1}</tool_call>', [("now", {})],
    ),
}  # fmt: skip


def reader(kind: type[ToolParser], **options: Any) -> AnswerReader:
    schemas = {"weather": {}, "time": {}, "f": {}}
    thoughts = REASONING_PARSERS["openai_gptoss"] if kind is HarmonyParser else THINK
    return AnswerReader(AnswerForm(thoughts, tools=kind, schemas=schemas, **options))


def anonymous(events: list[Event]) -> list[Event]:
    return [replace(event, id="") if isinstance(event, CallStart) else event for event in events]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_answers_say_the_same_however_they_are_split(name: str) -> None:
    kind, text, reasoning, content, calls = RECORDED[name]
    whole = anonymous(reader(kind).read(text))
    answer = ParsedAnswer.of(whole)
    assert (answer.reasoning, answer.content) == (reasoning, content)
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == calls
    raw = text.encode()
    splits = [_decoded([raw[:cut], raw[cut:]]) for cut in range(len(raw))]
    for pieces in (list(text), _decoded([raw[at : at + 1] for at in range(len(raw))]), *splits):
        grown = reader(kind)
        events = [event for piece in pieces for event in grown.feed(piece)] + grown.finish()
        assert anonymous(merge(events)) == whole, pieces


@given(st.sampled_from(sorted(RECORDED)), st.integers(0, 400), st.integers(0, 60), st.lists(st.integers(0, 400)))
def test_a_damaged_answer_is_read_without_errors_however_it_is_split(
    name: str, start: int, size: int, cuts: list[int]
) -> None:
    kind, text, *_ = RECORDED[name]
    start %= len(text)
    text = text[:start] + text[start + size :]
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    grown = reader(kind)
    events = [event for first, end in pairwise(places) for event in grown.feed(text[first:end])] + grown.finish()
    assert anonymous(merge(events)) == anonymous(reader(kind).read(text))


def _decoded(pieces: list[bytes]) -> list[str]:
    """Decode as the server does: incomplete characters wait for their remaining bytes."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    return [decode(piece) for piece in pieces]


@pytest.mark.parametrize("name", RECORDED)
def test_a_streamed_beginning_is_never_taken_back(name: str) -> None:
    """The parse of a text's prefix is a prefix of the text's parse."""
    kind, text, reasoning, content, calls = RECORDED[name]
    grown, told = reader(kind), ParsedAnswer("", "", [])
    for character in text:
        more = ParsedAnswer.of(grown.feed(character))
        told = ParsedAnswer(told.reasoning + more.reasoning, told.content + more.content, told.calls + more.calls)
        assert reasoning.startswith(told.reasoning)
        assert content.startswith(told.content)
        assert [call.name for call in told.calls] == [name for name, _ in calls[: len(told.calls)]]


def test_a_qwen_coder_value_is_of_the_type_that_its_schema_names() -> None:
    kinds = {
        "text": {"type": "string"}, "number": {"type": "number"}, "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "list": {"type": ["array", "null"]},
        "colour": {"enum": ["1", "2"]}, "odd": {"type": 1, "anyOf": 1, "enum": 1},
    }  # fmt: skip
    schemas = {"f": {"properties": kinds}, "g": {"properties": 1}}

    def read(function: str, **given: str) -> Any:
        values = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in given.items())
        text = f"<tool_call>\n<function={function}>\n{values}</function>\n</tool_call>"
        form = AnswerForm(tools=QwenCoderParser, schemas=schemas)
        parsers = AnswerReader(form), AnswerReader(form)
        whole = ParsedAnswer.of(parsers[0].read(text)).calls[0].arguments
        pieces = [event for character in text for event in parsers[1].feed(character)] + parsers[1].finish()
        assert ParsedAnswer.of(pieces).calls[0].arguments == whole
        return json.loads(whole)

    assert read("f", text="12", number="1.5", flag="True", maybe="null", list="[1, null]", colour="1", odd="x") == {
        "text": "12", "number": 1.5, "flag": True, "maybe": None, "list": [1, None], "colour": "1", "odd": "x",
    }  # fmt: skip
    assert read("f", maybe="12", number="many", flag="NaN", new='{"a": 1}') == {
        "maybe": "12", "number": "many", "flag": "NaN", "new": {"a": 1},
    }  # fmt: skip
    assert read("g", x="1") == {"x": 1}
    assert read("unknown", x="1") == {"x": 1}


def test_an_answer_that_is_cut_short_keeps_what_it_has() -> None:
    def read(text: str, kind: type[ToolParser] = HermesParser) -> tuple[str, str, list[tuple[str, str]]]:
        answer = ParsedAnswer.of(reader(kind).read(text))
        return answer.reasoning, answer.content, [(call.name, call.arguments) for call in answer.calls]

    assert read("<think>hm </thi") == ("hm </thi", "", [])
    assert read(" <thi") == ("", " <thi", [])
    assert read('<tool_call>{"name": "f", "arguments": {"a": "b') == ("", "", [("f", '{"a": "b')])
    assert read('a <tool_call>\n{"na') == ("", 'a <tool_call>\n{"na', [])
    cut = "<tool_call><function=f><parameter=a>1</parameter><parameter=b>\nx <"
    assert read(cut, QwenCoderParser) == ("", "", [("f", '{"a": 1, "b": ')])
    assert read("<tool_call><function=f", QwenCoderParser) == ("", "<tool_call><function=f", [])
    assert read('[TOOL_CALLS][{"name": "f", "arguments": {}}, {"na', MistralParser) == ("", ', {"na', [("f", "{}")])
    assert read('[{"name": "f", "arguments": {}}, {"na', ForcedParser) == ("", "", [("f", "{}")])


def test_one_call_is_enough_where_that_was_asked_for() -> None:
    kind, text, _, content, calls = RECORDED["qwen, after words, two at once"]
    answer = ParsedAnswer.of(reader(kind, is_parallel=False).read(text))
    assert (answer.content, [call.name for call in answer.calls]) == (content, [calls[0][0]])


def test_thoughts_that_the_prompt_began_end_where_the_model_ends_them() -> None:
    thinking = AnswerReader(AnswerForm(THINK, is_thinking=True))
    assert ParsedAnswer.of(thinking.read("\nhm\n</think>\n\nYes.")) == ParsedAnswer("hm", "Yes.", [])
    hidden = AnswerReader(AnswerForm(THINK, is_thinking=True, shows_reasoning=False))
    assert ParsedAnswer.of(hidden.read("hm</think>Yes.")) == ParsedAnswer("", "Yes.", [])
    exact = AnswerReader(AnswerForm(THINK, is_exact=True))
    assert ParsedAnswer.of(exact.read("<think> hm </think> yes\n")) == ParsedAnswer("hm", " yes\n", [])


def test_ids_are_as_the_family_s_template_wants_them() -> None:
    def ids(name: str) -> list[str]:
        kind, text, *_ = RECORDED[name]
        return [call.id for call in ParsedAnswer.of(reader(kind).read(text)).calls]

    assert all(len(id_) == 9 and id_.isalnum() for id_ in ids("mistral, an array"))
    assert len(set(ids("qwen, after words, two at once"))) == 2


def test_an_endless_call_takes_time_that_grows_with_its_length_only() -> None:
    text = '<tool_call>{"x":[' * 5000 + "]}" * 5000
    read = reader(HermesParser)
    assert ParsedAnswer.of(read.read(text)).content == text


def test_families_are_recognized_by_their_templates() -> None:
    assert tool_parser("auto", "{{ '<tool_call>' }}") is HermesParser
    assert tool_parser("auto", "[TOOL_CALLS]") is MistralParser
    assert tool_parser("auto", "<|python_tag|>") is LlamaParser
    assert tool_parser("auto", "<tool_call><function=") is tool_parser("qwen3_coder", "") is QwenCoderParser
    assert tool_parser("auto", "{{ tools }}") is None
    assert tool_parser("llama3_json", "<tool_call>") is LlamaParser
    for template, parser in {
        "<|channel|>analysis": HarmonyParser, "<｜tool▁calls▁begin｜>": DeepSeekParser, "<|tool_call>": GemmaParser,
        "<tool_call>{name}<arg_key>": GlmParser, "<|tool_call_start|>": Lfm2Parser, "<|tool_call|>": ArrayParser,
    }.items():  # fmt: skip
        assert tool_parser("auto", template) is parser
    assert reasoning_markers("auto", "<|channel|>analysis<|message|><think>") is reasoning_markers("openai_gptoss", "")
    assert reasoning_markers("auto", "<channel|>") is reasoning_markers("gemma4", "")
    assert reasoning_markers("auto", "</think>") is reasoning_markers("qwen3", "") is THINK
    assert reasoning_markers("auto", "x") is reasoning_markers("none", "</think>") is None


def test_a_forced_call_s_schema_names_the_functions_and_their_arguments() -> None:
    leaf = {"$ref": "#/$defs/leaf"}
    schema = {"type": "object", "properties": {"leaf": leaf}, "$defs": {"leaf": {"enum": [leaf]}}}
    one = forced_calls_schema([{"name": "weather", "parameters": schema}], is_parallel=False)
    assert (one["minItems"], one["maxItems"]) == (1, 1)
    assert one["items"]["properties"] == {"name": {"const": "weather"}, "arguments": {"$ref": "#/$defs/arguments0"}}
    moved = one["$defs"]["arguments0"]
    assert moved["properties"] == {"leaf": {"$ref": "#/$defs/arguments0/$defs/leaf"}}
    assert moved["$defs"] == schema["$defs"], "an example is no reference"
    assert moved["additionalProperties"] is False, "a call of a model that says anything comes to its end"
    mixed = {"type": "object", "allOf": [schema, {"type": "object", "properties": {"properties": {}}}]}
    joined = forced_calls_schema([{"name": "weather", "parameters": mixed}], is_parallel=False)
    assert "additionalProperties" not in str(joined["$defs"])
    both = forced_calls_schema([{"name": "weather", "parameters": schema}, {"name": "now"}], is_parallel=True)
    assert [each["properties"]["name"]["const"] for each in both["items"]["anyOf"]] == ["weather", "now"]
    assert both["maxItems"] > 1


def test_what_is_no_text_is_no_call() -> None:
    text = '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>'
    answer = ParsedAnswer.of(reader(HermesParser).read(text))
    assert not answer.calls
    answer.content.encode()
