"""Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one call in each."""

from __future__ import annotations

from quire.server.tools.json_reading import Reading, read_call, skip_blanks
from quire.server.tools.parser import ToolParser


class HermesParser(ToolParser):
    """A call's end may be missing: the JSON says where it is."""

    openings = ("<tool_call>",)
    closing = "</tool_call>"
    markers = (*openings, closing)

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_call(character, self))
