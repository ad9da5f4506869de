"""Parsers for calls: of model families, chosen by name or chat template, and for calls that a grammar forces."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from quire.server.tools.parser import (
    MarkerSearch,
    NotACall,
    Reading,
    ReasoningMarkers,
    ToolParser,
    random_id,
    read_arguments,
    read_call,
    skip,
    skip_blanks,
)

_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_-.")


class HermesParser(ToolParser):
    """Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one each. The end may be missing."""

    openings = ("<tool_call>",)
    closing = "</tool_call>"
    markers = (*openings, closing)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_call(character, self))


class LlamaParser(ToolParser):
    """Llama 3: {"name": ..., "parameters": {...}}, as the whole answer or behind <|python_tag|>, separated by ;.

    Without the tag, a text is a call only if it names a known function.
    """

    openings = markers = ("<|python_tag|>",)
    is_bare = True
    grammar = 'alternative: "<|python_tag|>"? body ("; " body)*'

    def start(self, name: str) -> bool:
        return (bool(self._marker) or name in self.schemas) and super().start(name)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        while True:
            character = yield from read_call(character, self)
            self.end_call()
            character = yield from skip_blanks(character)
            if character in (";", ","):
                character = yield from skip_blanks((yield))
            elif character != "{":
                return character


class MistralParser(ToolParser):
    """Mistral: [TOOL_CALLS] and an array of calls, or [TOOL_CALLS]name[ARGS]{...} for each (tokenizer v11).

    Mistral's templates accept ids of nine letters and digits only.
    """

    openings = ("[TOOL_CALLS]",)
    markers = (*openings, "[CALL_ID]", "[ARGS]")
    grammar = (
        'alternative: "[TOOL_CALLS]" " "? "[" body (", " body)* "]" | ("[TOOL_CALLS]" NAME "[ARGS]" arguments)+\n'
        'arguments: %json {"type": "object", "x-guidance": {"whitespace_pattern": " ?"}}'
    )

    def _new_id(self) -> str:
        return random_id(9)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        if character == "[":
            return (yield from read_array(character, self))
        if character == "{":
            return (yield from read_call(character, self))
        return (yield from self._read_named(character))

    def _read_named(self, character: str) -> Reading[str]:
        """Read name[ARGS]{...}; some versions write [CALL_ID]id before [ARGS]."""
        name: list[str] = []
        while character and character in _NAME_CHARACTERS:
            name.append(character)
            character = yield
        if not name:
            raise NotACall(character)
        if character == "[":
            character = yield from skip("[", character)
            if character == "C":
                character = yield from skip("CALL_ID]", character)
                while character and character in _NAME_CHARACTERS:
                    character = yield
                character = yield from skip("[", character)
            character = yield from skip("ARGS]", character)
        character = yield from skip_blanks(character)
        if character != "{":
            raise NotACall(character)
        self.start("".join(name))
        return (yield from read_arguments(character, self.arguments))


class QwenCoderParser(ToolParser):
    """Qwen3-Coder: <tool_call><function=name><parameter=key>\nvalue\n</parameter>...</function></tool_call>.

    A value is a text; the schema tells whether it is written as JSON. Texts are passed on while they grow.
    """

    openings = ("<tool_call>", "<function=")
    closing = "</tool_call>"
    markers = (*openings, closing)
    grammar = (
        "alternative: call (BLANK call)*\n"
        'call: "<tool_call>\\n<function=" NAME ">\\n" parameter* "</function>\\n</tool_call>"\n'
        'parameter: "<parameter=" /[^<>\\n]{1,64}/ ">\\n" value\n'
        r"value[lazy]: /(?s:.*)\n<\/parameter>\n/"
    )
    _ends = ("\n</parameter>", "</parameter>", "\n<parameter=", "\n</function>", "\n</tool_call>")

    def _read(self, marker: str, character: str) -> Reading[str]:
        if marker != "<function=":
            character = yield from skip_blanks(character)
            character = yield from skip("<function=", character)
        name, character = yield from _read_until(">", character)
        if not self.start(name):
            raise NotACall(character)
        given = self.schemas.get(name, {}).get("properties")
        schemas = given if isinstance(given, dict) else {}
        lead = "{"
        character = yield from skip_blanks(character)
        tag, character = yield from self._read_tag(character)
        while tag == "<parameter=":
            key, character = yield from _read_until(">", character)
            self.arguments(f"{lead}{json.dumps(key, ensure_ascii=False)}: ")
            tag, character = yield from self._read_value(schemas.get(key), character)
            lead = ", "
            if tag == "</parameter>":
                character = yield from skip_blanks(character)
                tag, character = yield from self._read_tag(character)
        if tag or character:
            self.arguments("{}" if lead == "{" else "}")
        return character

    def _read_tag(self, character: str) -> Reading[tuple[str, str]]:
        """Return a tag behind a value, "" for anything else, and the next character."""
        tag = ""
        while character and any(each.startswith(tag + character) for each in ("<parameter=", "</function>")):
            tag += character
            character = yield
            if tag in ("<parameter=", "</function>"):
                break
        return tag, character

    def _read_value(self, schema: Any, character: str) -> Reading[tuple[str, str]]:
        """Pass a value on as JSON. Returns the tag behind it, "" at the end of the text, and the next character."""
        is_text = _types(schema) == {"string"}
        search, value, end = MarkerSearch(self._ends), "", None
        if character == "\n":
            character = yield
        if is_text:
            self.arguments('"')
        while character and end is None:
            piece, end, _ = search.feed(character)
            if is_text:
                self.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
            else:
                value += piece
            character = yield
        if end is None:  # the text was cut off
            return "", character
        self.arguments('"' if is_text else _as_json(value, schema))
        return end.strip(), character


def _read_until(end: str, character: str) -> Reading[tuple[str, str]]:
    """Return a name up to a character, and the character behind. Raises NotACall for a line break or no name."""
    name = ""
    while character != end:
        if not character or character == "\n":
            raise NotACall(character)
        name += character
        character = yield
    if not name:
        raise NotACall(character)
    return name, (yield)


def _types(schema: Any) -> set[str]:
    """Return the JSON types that a schema names; none if it leaves them open."""
    if not isinstance(schema, dict):
        return set()
    named, values = schema.get("type"), schema.get("enum")
    types = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
    for alternatives in filter(None, (schema.get("anyOf"), schema.get("oneOf"))):
        types = types.union(*map(_types, alternatives)) if isinstance(alternatives, list) else types
    if not types and isinstance(values, list) and all(isinstance(value, str) for value in values):
        return {"string"}
    return types


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _as_json(text: str, schema: Any) -> str:
    """Return a value as JSON: of the schema's types, or a string."""
    types = _types(schema)
    value = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        found = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    is_text = "string" in types and found is not None
    return json.dumps(text, ensure_ascii=False) if is_text else value


def read_array(character: str, parser: ToolParser) -> Reading[str]:
    """Read [{"name": ..., "arguments": {...}}, ...]."""
    character = yield from skip("[", character)
    while True:
        character = yield from skip_blanks(character)
        character = yield from read_call(character, parser)
        parser.end_call()
        character = yield from skip_blanks(character)
        if character != ",":
            return (yield from skip("]", character))
        character = yield


AUTO, NONE = "auto", "none"
#: The second name of a family is vLLM's.
TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "hermes": HermesParser,
    "llama3": LlamaParser,
    "llama3_json": LlamaParser,
    "mistral": MistralParser,
    "qwen3_coder": QwenCoderParser,
    "qwen3_xml": QwenCoderParser,
}
_THINK = ReasoningMarkers("<think>", "</think>")
_MISTRAL = ReasoningMarkers("[THINK]", "[/THINK]")
REASONING_PARSERS = {"think": _THINK, "deepseek_r1": _THINK, "qwen3": _THINK, "mistral": _MISTRAL}


def tool_parser(name: str, template: str) -> type[ToolParser] | None:
    """Return the parser of this name; for `auto` the one for the chat template, None if the template is unknown."""
    if name != AUTO:
        return TOOL_PARSERS.get(name)
    if "[TOOL_CALLS]" in template:
        return MistralParser
    if "<tool_call>" in template:
        return QwenCoderParser if "<function=" in template else HermesParser
    if "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return LlamaParser
    return None


@lru_cache(maxsize=64)
def reasoning_markers(name: str, template: str) -> ReasoningMarkers | None:
    """Return the markers of this name; for `auto` those in the chat template, None if it has none."""
    if name != AUTO:
        return REASONING_PARSERS.get(name)
    for markers in (_THINK, _MISTRAL):
        if markers.closing in template:
            return markers
    return None


_MAX_CALLS = 16
# Keywords of JSON Schema: with schemas by name, with values that are no schemas, and those that let an object have more
# than its `properties`.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "required"})
_OPEN = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "$ref", "if"}
)


class ForcedParser(ToolParser):
    """Parses answers that follow `forced_calls_schema`."""

    openings = markers = ()
    is_bare = True

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_array(character, self))


def forced_calls_schema(functions: Sequence[Mapping[str, Any]], *, is_parallel: bool) -> dict[str, Any]:
    """Return the JSON schema of a call, or with `is_parallel` of one or more, of functions with `name` and optionally
    `parameters`, a JSON schema."""
    calls, definitions = [], {}
    for number, function in enumerate(functions):
        key = f"arguments{number}"
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        definitions[key] = _relocated(schema, f"#/$defs/{key}", closes=not _has_all_of(schema))
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": {"$ref": f"#/$defs/{key}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    max_items = _MAX_CALLS if is_parallel else 1
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items, "$defs": definitions}


def calls_grammar(parser: type[ToolParser], functions: Sequence[Mapping[str, Any]]) -> str:
    """Return Lark rules of one or more calls in the form that the parser reads."""
    schema = forced_calls_schema(functions, is_parallel=True)
    body = {**schema["items"], "$defs": schema["$defs"], "x-guidance": {"whitespace_pattern": " ?"}}
    names = " | ".join(json.dumps(function["name"]) for function in functions)
    return f"{parser.grammar}\nbody: %json {json.dumps(body)}\nNAME: {names}\nBLANK: /\\n?/\n"


def _relocated(schema: Any, root: str, *, closes: bool) -> Any:
    """Return a schema whose references work below the new root. With `closes` it forbids additional properties by
    default, so that a random model comes to an end."""
    if isinstance(schema, list):
        return [_relocated(item, root, closes=closes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            moved[key] = root + value[1:]
        elif key in _NAMED and isinstance(value, dict):
            moved[key] = {name: _relocated(item, root, closes=closes) for name, item in value.items()}
        else:
            moved[key] = value if key in _VALUES else _relocated(value, root, closes=closes)
    if closes and "properties" in moved and not _OPEN & moved.keys():
        moved["additionalProperties"] = False
    return moved


def _has_all_of(schema: Any) -> bool:
    """Whether objects combine several schemas, none of which may forbid the others' properties."""
    if isinstance(schema, list):
        return any(map(_has_all_of, schema))
    return isinstance(schema, dict) and ("allOf" in schema or any(map(_has_all_of, schema.values())))
