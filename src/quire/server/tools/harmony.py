"""Parser for gpt-oss: messages with a channel and maybe a recipient, in OpenAI's harmony format."""

from __future__ import annotations

import re

from quire.server.tools.parser import (
    NotACall,
    Reading,
    Reasoning,
    ToolParser,
    read_arguments,
    read_until,
    skip_blanks,
)

_MAX_HEADER = 512  # characters
_ENDS = ("<|end|>", "<|return|>", "<|call|>")


class HarmonyParser(ToolParser):
    """<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|> is a call; other messages are
    reasoning (channel analysis) or content (final, commentary). The recipient may stand before the channel."""

    openings = ("<|start|>", "<|channel|>", *_ENDS)
    markers = (*openings, "<|message|>", "<|constrain|>")
    trigger, before = "to=functions.", '"<|start|>assistant"? "<|channel|>commentary "'
    calls, function = "function", 'NAME "<|channel|>commentary"? " "? "<|constrain|>"? "json"? "<|message|>" ALL'

    def start(self, name: str) -> bool:
        return name in self.schemas and super().start(name)

    def _read(self, marker: str, character: str) -> Reading[str]:
        if marker in _ENDS:
            return character
        header = ""
        while not header.endswith("<|message|>"):
            if not character or len(header) > _MAX_HEADER:
                raise NotACall(character)
            header += character
            character = yield
        recipient = re.search(r"to=functions\.([\w.-]+)", header)
        if recipient is not None:
            character = yield from skip_blanks(character)
            if character != "{" or not self.start(recipient[1]):
                raise NotACall(character)
            return (yield from read_arguments(character, self.arguments))
        if re.search(r"(^|<\|channel\|>)analysis", header) is not None:
            self._attempt = None  # never taken back
            _, character = yield from read_until(_ENDS, character, lambda piece: self._events.append(Reasoning(piece)))
        return character
