"""Parsers for calls between tags: Qwen3-Coder, GLM, DeepSeek. A value may be a text whose type the schema tells."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from quire.server.tools.parser import (
    NAME_CHARACTERS,
    NotACall,
    Reading,
    ToolParser,
    read_arguments,
    read_name,
    read_until,
    skip,
    skip_blanks,
)


class QwenCoderParser(ToolParser):
    """Qwen3-Coder: <tool_call><function=name><parameter=key>\nvalue\n</parameter>...</function></tool_call>.

    A value is a text; the schema tells whether it is written as JSON. Texts are passed on while they grow.
    """

    openings = ("<tool_call>", "<function=")
    closing = "</tool_call>"
    markers = (*openings, closing)
    trigger, before, calls = "<function=", '"<tool_call>\\n"', "function"
    function, pair = 'NAME ">\\n" ALL "</function>\\n</tool_call>"', '"<parameter=" KEY ">\\n" VALUE'
    quotes = ("", "\n</parameter>\n")
    _ends = ("\n</parameter>", "</parameter>", "\n<parameter=", "\n</function>", "\n</tool_call>")

    def _read(self, marker: str, character: str) -> Reading[str]:
        if marker != "<function=":
            character = yield from skip_blanks(character)
            character = yield from skip("<function=", character)
        name, character = yield from _read_key(character)
        if not self.start(name):
            raise NotACall(character)
        schemas = properties_of(self.schemas.get(name))
        lead = "{"
        character = yield from skip_blanks(character)
        tag, character = yield from _read_tag(("<parameter=", "</function>"), character)
        while tag == "<parameter=":
            key, character = yield from _read_key(character)
            self.arguments(f"{lead}{json.dumps(key, ensure_ascii=False)}: ")
            if character == "\n":
                character = yield
            end, character = yield from _read_value(self, schemas.get(key), self._ends, character)
            tag, lead = end.strip(), ", "
            if tag == "</parameter>":
                character = yield from skip_blanks(character)
                tag, character = yield from _read_tag(("<parameter=", "</function>"), character)
        if tag or character:
            self.arguments("{}" if lead == "{" else "}")
        return character


class GlmParser(ToolParser):
    """GLM 4.5 to 4.7: <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>...</tool_call>."""

    openings = ("<tool_call>",)
    closing = "</tool_call>"
    markers = (*openings, closing, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    calls, function = "function", 'NAME ALL BLANK "</tool_call>"'
    pair = 'BLANK "<arg_key>" KEY "</arg_key>" BLANK "<arg_value>" VALUE'
    quotes = ("", "</arg_value>")

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        name, character = yield from read_name(character)
        character = yield from skip_blanks(character)
        tag, character = yield from _read_tag(("<arg_key>", "</tool_call>"), character)
        if not tag or not self.start(name):
            raise NotACall(character)
        schemas = properties_of(self.schemas.get(name))
        lead = "{"
        while tag == "<arg_key>":
            letters: list[str] = []
            _, character = yield from read_until(("</arg_key>",), character, letters.append)
            character = yield from skip_blanks(character)
            character = yield from skip("<arg_value>", character)
            key = "".join(letters).strip()
            self.arguments(f"{lead}{json.dumps(key, ensure_ascii=False)}: ")
            tag, character = yield from _read_value(self, schemas.get(key), ("</arg_value>",), character)
            lead = ", "
            if tag:
                character = yield from skip_blanks(character)
                tag, character = yield from _read_tag(("<arg_key>", "</tool_call>"), character)
        if tag or character:
            self.arguments("{}" if lead == "{" else "}")
        return character


_CALL, _SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"


class DeepSeekParser(ToolParser):
    """DeepSeek: name<｜tool▁sep｜>{...} between markers (V3.1), or function<｜tool▁sep｜>name and a code block."""

    openings = (_CALL, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
    markers = (*openings, _SEPARATOR)
    trigger, before = _CALL, '"<｜tool▁calls▁begin｜>"'
    calls = f'function ("{_CALL}" function)* "<｜tool▁calls▁end｜>"'
    function = f'NAME "{_SEPARATOR}" ALL "<｜tool▁call▁end｜>"'

    def _read(self, marker: str, character: str) -> Reading[str]:
        if marker != _CALL:
            return character
        name, character = yield from read_name(character)
        character = yield from skip(_SEPARATOR, character)
        if character in NAME_CHARACTERS:
            name, character = yield from read_name(character)
            character = yield from skip_blanks(character)
            character = yield from skip("```json", character)
        character = yield from skip_blanks(character)
        if character != "{" or not self.start(name):
            raise NotACall(character)
        character = yield from read_arguments(character, self.arguments)
        character = yield from skip_blanks(character)
        while character == "`":
            character = yield
        return character


def _read_key(character: str) -> Reading[tuple[str, str]]:
    """Return a name up to >, and the character behind. Raises NotACall for a line break or no name."""
    name = ""
    while character != ">":
        if not character or character == "\n":
            raise NotACall(character)
        name += character
        character = yield
    if not name:
        raise NotACall(character)
    return name, (yield)


def _read_tag(tags: Iterable[str], character: str) -> Reading[tuple[str, str]]:
    """Return one of the tags, "" for anything else, and the next character."""
    tag = ""
    while character and any(each.startswith(tag + character) for each in tags):
        tag += character
        character = yield
        if tag in tags:
            break
    return tag, character


def _read_value(parser: ToolParser, schema: Any, ends: tuple[str, ...], character: str) -> Reading[tuple[str, str]]:
    """Pass a value on as JSON. Returns the end behind it, "" at the end of the text, and the next character."""
    if is_text := types_of(schema) == {"string"}:
        parser.arguments('"')
    value: list[str] = []

    def sink(piece: str) -> None:
        if is_text:
            parser.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
        else:
            value.append(piece)

    end, character = yield from read_until(ends, character, sink)
    if end:
        parser.arguments('"' if is_text else _as_json("".join(value), schema))
    return end, character


def properties_of(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def types_of(schema: Any) -> set[str]:
    """Return the JSON types that a schema names; none if it leaves them open."""
    if not isinstance(schema, dict):
        return set()
    named, values = schema.get("type"), schema.get("enum")
    types = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
    for alternatives in filter(None, (schema.get("anyOf"), schema.get("oneOf"))):
        types = types.union(*map(types_of, alternatives)) if isinstance(alternatives, list) else types
    if not types and isinstance(values, list) and all(isinstance(value, str) for value in values):
        return {"string"}
    return types


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _as_json(text: str, schema: Any) -> str:
    """Return a value as JSON: of the schema's types, or a string."""
    types = types_of(schema)
    value = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        found = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    is_text = "string" in types and found is not None
    return json.dumps(text, ensure_ascii=False) if is_text else value
