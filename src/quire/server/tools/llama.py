"""Llama 3: {"name": ..., "parameters": {...}} as the whole answer, or behind <|python_tag|>; several with ; between."""

from __future__ import annotations

from collections.abc import Collection

from quire.server.tools.json_reading import Reading, read_call, skip_blanks
from quire.server.tools.parser import ToolParser


class LlamaParser(ToolParser):
    """Without the tag, an answer that begins like a call is one where it names a function that there is."""

    openings = markers = ("<|python_tag|>",)

    def __init__(self, tool_names: Collection[str]) -> None:
        super().__init__(tool_names)
        self._begin("")

    def start(self, name: str) -> bool:
        return (bool(self._marker) or name in self.tool_names) and super().start(name)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        while True:
            character = yield from read_call(character, self)
            self.expect_another()
            character = yield from skip_blanks(character)
            if character in (";", ","):
                character = yield from skip_blanks((yield))
            elif character != "{":
                return character
