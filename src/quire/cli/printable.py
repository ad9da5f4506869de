"""What may be written to a terminal: a model's text must not move its cursor or rename its window."""

from __future__ import annotations

import unicodedata

# Control characters, but for tab and line break.
_CONTROLS = {code: None for code in range(0xA0) if unicodedata.category(chr(code)) == "Cc" and chr(code) not in "\t\n"}


def printable(text: str) -> str:
    """The text without control characters, of which terminals make commands."""
    return text.translate(_CONTROLS)
