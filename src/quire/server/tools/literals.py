"""Parsers for calls with values in a notation of their own: Gemma's, and Python's (Llama 4, LFM2, OLMo 3)."""

from __future__ import annotations

import ast
import json

from quire.server.tools.parser import (
    BareParser,
    NotACall,
    Reading,
    ToolParser,
    pass_value,
    read_name,
    read_until,
    skip,
    skip_blanks,
)

_MAX_DEPTH = 32


class GemmaParser(ToolParser):
    """Gemma 4: <|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>. Keys have no quotes."""

    openings = ("<|tool_call>",)
    closing = "<tool_call|>"
    quote = '<|"|>'
    markers = (*openings, closing, quote)
    trigger, calls, function = "<|tool_call>", "function", '"call:" NAME "{" ALL "}<tool_call|>"'
    pair, between, quotes = 'KEY ":" VALUE', ",", (quote, quote)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        character = yield from skip("call:", character)
        name, character = yield from read_name(character)
        if character != "{" or not self.start(name):
            raise NotACall(character)
        return (yield from self._read_value(character, 0))

    def _read_value(self, character: str, depth: int) -> Reading[str]:
        """Pass a value on as JSON. Returns the character behind it."""
        if depth > _MAX_DEPTH:
            raise NotACall(character)
        if character in ("{", "["):
            return (yield from self._read_items(character, depth))
        if character == self.quote[0]:
            character = yield from skip(self.quote, character)
            self.arguments('"')
            end, character = yield from read_until(
                (self.quote,), character, lambda piece: self.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
            )
            self.arguments('"' if end else "")
            return character
        letters: list[str] = []
        character = yield from pass_value(character, letters.append)
        self.arguments(_to_json("".join(letters)) if character else "")
        return character

    def _read_items(self, opening: str, depth: int) -> Reading[str]:
        """Pass an object or an array on."""
        closing = "}" if opening == "{" else "]"
        self.arguments(opening)
        character = yield from skip_blanks((yield))
        while character and character != closing:
            if opening == "{":
                key = ""
                while character and character != ":":
                    key += character
                    character = yield
                key = key.strip().removeprefix(self.quote).removesuffix(self.quote).strip('"')
                self.arguments(f"{json.dumps(key, ensure_ascii=False)}: ")
                character = yield from skip_blanks((yield))
            character = yield from self._read_value(character, depth + 1)
            character = yield from skip_blanks(character)
            if character == ",":
                self.arguments(", ")
                character = yield from skip_blanks((yield))
            elif character != closing:
                break
        if character != closing:
            raise NotACall(character)
        self.arguments(closing)
        return (yield)


class FunctionGemmaParser(GemmaParser):
    """FunctionGemma: <start_function_call>call:name{key:<escape>text<escape>}<end_function_call>."""

    openings = ("<start_function_call>",)
    closing = "<end_function_call>"
    quote = "<escape>"
    markers = (*openings, closing, quote)
    trigger, function = openings[0], '"call:" NAME "{" ALL "}<end_function_call>"'
    quotes = (quote, quote)


class PythonParser(ToolParser):
    """[name(key="text", other=1), ...], with literals of Python as values."""

    calls, function, pair, between = '"[" function (", " function)* "]"', 'NAME "(" ALL ")"', 'KEY "=" VALUE', ", "

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        has_brackets = character == "["
        if not has_brackets and not marker:
            raise NotACall(character)
        character = yield from skip_blanks((yield) if has_brackets else character)
        while True:
            character = yield from self._read_call(character)
            self.end_call()
            character = yield from skip_blanks(character)
            if character == ",":
                character = yield from skip_blanks((yield))
            elif has_brackets or not character.isidentifier():
                return (yield from skip("]", character)) if has_brackets else character

    def _read_call(self, character: str) -> Reading[str]:
        name, character = yield from read_name(character)
        character = yield from skip("(", character)
        character = yield from skip_blanks(character)
        lead = "{"
        while character != ")":
            key, character = yield from read_name(character)
            character = yield from skip_blanks(character)
            character = yield from skip("=", character)
            if lead == "{" and not self.start(name):
                raise NotACall(character)
            self.arguments(f"{lead}{json.dumps(key)}: ")
            lead = ", "
            source, character = yield from _read_source(character)
            if not character:
                return character
            self.arguments(_to_json(source.strip()))
            if character == ",":
                character = yield from skip_blanks((yield))
        if lead == "{" and not self.start(name):
            raise NotACall(character)
        self.arguments("{}" if lead == "{" else "}")
        return (yield)


class Llama4Parser(BareParser, PythonParser):
    """Llama 4: the whole answer, or between <|python_start|> and <|python_end|>. Without, the name must be known."""

    openings = ("<|python_start|>",)
    closing = "<|python_end|>"
    markers = (*openings, closing)
    trigger, bare, calls = openings[0], "[", f'{PythonParser.calls} "<|python_end|>"?'


class Lfm2Parser(PythonParser):
    """LFM2: between <|tool_call_start|> and <|tool_call_end|>."""

    openings = ("<|tool_call_start|>",)
    closing = "<|tool_call_end|>"
    markers = (*openings, closing)
    trigger, calls = openings[0], f'{PythonParser.calls} "<|tool_call_end|>"'


class OlmoParser(PythonParser):
    """OLMo 3: a call a line between <function_calls> and </function_calls>."""

    openings = ("<function_calls>",)
    closing = "</function_calls>"
    markers = (*openings, closing)
    trigger, calls = openings[0], 'function (BLANK function)* "</function_calls>"'


def _read_source(character: str) -> Reading[tuple[str, str]]:
    """Return the source of a Python value, and the comma or parenthesis behind it ("" at the end of the text)."""
    source, depth, quote, is_escaped = [], 0, "", False
    while character and (depth or quote or character not in ",)"):
        source.append(character)
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
        character = yield
    return "".join(source), character


def _to_json(source: str) -> str:
    """Return a literal of JSON or Python as JSON; other text as a string."""
    for read in (json.loads, ast.literal_eval):
        try:
            return json.dumps(read(source), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return json.dumps(source, ensure_ascii=False)
