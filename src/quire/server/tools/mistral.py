"""Mistral: [TOOL_CALLS] and an array of calls, or, since its tokenizer v11, [TOOL_CALLS]name[ARGS]{...} a call."""

from __future__ import annotations

import string

from quire.server.tools.json_reading import NotACall, Reading, read_arguments, read_call, skip, skip_blanks
from quire.server.tools.parser import ToolParser, random_id

_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_-.")


class MistralParser(ToolParser):
    """Its templates refuse ids that are not nine letters and digits, so these are the ids here."""

    openings = ("[TOOL_CALLS]",)
    markers = (*openings, "[CALL_ID]", "[ARGS]")

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
        """name[ARGS]{...}, with [CALL_ID]id before [ARGS] in some versions."""
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


def read_array(character: str, parser: ToolParser) -> Reading[str]:
    """[{"name": ..., "arguments": {...}}, ...]"""
    character = yield from skip("[", character)
    while True:
        character = yield from skip_blanks(character)
        character = yield from read_call(character, parser)
        parser.expect_another()
        character = yield from skip_blanks(character)
        if character != ",":
            return (yield from skip("]", character))
        character = yield
