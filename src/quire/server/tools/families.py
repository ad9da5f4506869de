"""Parsers for calls: of model families, chosen by name or chat template, and for calls that a grammar forces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from quire.server.tools.harmony import HarmonyParser
from quire.server.tools.literals import FunctionGemmaParser, GemmaParser, Lfm2Parser, Llama4Parser, OlmoParser
from quire.server.tools.parser import (
    NAME_CHARACTERS,
    BareParser,
    NotACall,
    Reading,
    ReasoningMarkers,
    ToolParser,
    random_id,
    read_arguments,
    read_call,
    read_name,
    skip,
    skip_blanks,
)
from quire.server.tools.tagged import DeepSeekParser, GlmParser, QwenCoderParser


class HermesParser(ToolParser):
    """Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one each. The end may be missing."""

    openings = ("<tool_call>",)
    closing = "</tool_call>"
    markers = (*openings, closing)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_call(character, self))


class LlamaParser(BareParser):
    """Llama 3: {"name": ..., "parameters": {...}}, as the whole answer or behind <|python_tag|>, separated by ;.

    Without the tag, a text is a call only if it names a known function.
    """

    openings = markers = ("<|python_tag|>",)
    trigger, bare, calls = "<|python_tag|>", "{", 'body ("; " body)*'
    keys = ("parameters", "arguments")

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
    trigger, calls, function = "[TOOL_CALLS]", '" "? "[" body (", " body)* "]" | function', 'NAME "[ARGS]" ALL'

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
        name, character = yield from read_name(character)
        if character == "[":
            character = yield from skip("[", character)
            if character == "C":
                character = yield from skip("CALL_ID]", character)
                while character and character in NAME_CHARACTERS:
                    character = yield
                character = yield from skip("[", character)
            character = yield from skip("ARGS]", character)
        character = yield from skip_blanks(character)
        if character != "{":
            raise NotACall(character)
        self.start(name)
        return (yield from read_arguments(character, self.arguments))


class ArrayParser(ToolParser):
    """Granite 3 and Phi-4-mini: <|tool_call|>[{"name": ..., "arguments": {...}}, ...]."""

    openings = ("<|tool_call|>",)
    closing = "<|/tool_call|>"
    markers = (*openings, closing)
    trigger, calls = "<|tool_call|>", '"[" body (", " body)* "]"'

    def _read(self, marker: str, character: str) -> Reading[str]:
        return (yield from read_array(character, self))


def read_array(character: str, parser: ToolParser) -> Reading[str]:
    """Read [{"name": ..., "arguments": {...}}, ...], maybe behind blanks."""
    character = yield from skip_blanks(character)
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
#: By name; most are vLLM's.
TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "deepseek_v3": DeepSeekParser,
    "deepseek_v31": DeepSeekParser,
    "functiongemma": FunctionGemmaParser,
    "gemma4": GemmaParser,
    "glm45": GlmParser,
    "glm47": GlmParser,
    "granite": ArrayParser,
    "hermes": HermesParser,
    "lfm2": Lfm2Parser,
    "llama3": LlamaParser,
    "llama3_json": LlamaParser,
    "llama4_pythonic": Llama4Parser,
    "mistral": MistralParser,
    "olmo3": OlmoParser,
    "openai": HarmonyParser,
    "phi4_mini_json": ArrayParser,
    "qwen3_coder": QwenCoderParser,
    "qwen3_xml": QwenCoderParser,
}
#: Text in chat templates -> the parser of their calls; the first one found counts.
_SIGNS: dict[str, type[ToolParser]] = {
    "[TOOL_CALLS]": MistralParser,
    "<|channel|>analysis": HarmonyParser,
    "<｜tool▁calls▁begin｜>": DeepSeekParser,
    "<arg_key>": GlmParser,
    "<function=": QwenCoderParser,
    "<tool_call>": HermesParser,
    "<|tool_call>": GemmaParser,
    "<start_function_call>": FunctionGemmaParser,
    "<|tool_call_start|>": Lfm2Parser,
    "<|tool_call|>": ArrayParser,
    "<function_calls>": OlmoParser,
    "<|python_start|>": Llama4Parser,
    "<|python_tag|>": LlamaParser,
}
_THINK = ReasoningMarkers("<think>", "</think>")
_MISTRAL = ReasoningMarkers("[THINK]", "[/THINK]")
_GEMMA = ReasoningMarkers("<|channel>thought", "<channel|>")
_HARMONY = ReasoningMarkers("<|channel|>analysis<|message|>", "<|end|>")
REASONING_PARSERS = {
    "think": _THINK,
    "deepseek_r1": _THINK,
    "qwen3": _THINK,
    "mistral": _MISTRAL,
    "gemma4": _GEMMA,
    "openai_gptoss": _HARMONY,
}


def tool_parser(name: str, template: str) -> type[ToolParser] | None:
    """Return the parser of this name; for `auto` the one for the chat template, None if the template is unknown."""
    if name != AUTO:
        return TOOL_PARSERS.get(name)
    for sign, parser in _SIGNS.items():
        if sign in template:
            return parser
    return LlamaParser if "<|start_header_id|>" in template and '"parameters"' in template else None


@lru_cache(maxsize=64)
def reasoning_markers(name: str, template: str) -> ReasoningMarkers | None:
    """Return the markers of this name; for `auto` those in the chat template, None if it has none."""
    if name != AUTO:
        return REASONING_PARSERS.get(name)
    if "<|channel|>analysis" in template:
        return _HARMONY
    for markers in (_THINK, _MISTRAL, _GEMMA):
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
    """Parses answers that follow `forced_calls_schema`. A call that is cut off before its name is left out."""

    openings = markers = ()
    is_bare = True

    def _add_content(self, text: str) -> None:
        """Drop text, which is a part of the array."""

    def _read(self, marker: str, character: str) -> Reading[str]:
        return (yield from read_array(character, self))


def forced_calls_schema(
    functions: Sequence[Mapping[str, Any]], *, is_parallel: bool, keys: Sequence[str] = ("arguments",)
) -> dict[str, Any]:
    """Return the JSON schema of a call, or with `is_parallel` of one or more, of functions with `name` and optionally
    `parameters`, a JSON schema. `keys` are the names that arguments may have in a call."""
    calls, definitions = [], {}
    for number, function in enumerate(functions):
        key = f"arguments{number}"
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        definitions[key] = _relocated(schema, f"#/$defs/{key}", closes=not _has_all_of(schema))
        calls += [
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, name: {"$ref": f"#/$defs/{key}"}},
                "required": ["name", name],
                "additionalProperties": False,
            }
            for name in keys
        ]
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    max_items = _MAX_CALLS if is_parallel else 1
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items, "$defs": definitions}


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
