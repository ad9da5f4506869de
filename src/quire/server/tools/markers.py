"""A search for markers in streamed text, which holds back a possible beginning of one."""

from __future__ import annotations

from collections.abc import Sequence


class MarkerSearch:
    """Finds the first of several non-empty markers."""

    def __init__(self, markers: Sequence[str]) -> None:
        self.markers = tuple(markers)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None, str]:
        """Return the text before a marker, the marker or None, and the text behind it."""
        text = self._held + text
        found = min(((text.find(marker), marker) for marker in self.markers if marker in text), default=None)
        if found is not None:
            start, marker = found
            self._held = ""
            return text[:start], marker, text[start + len(marker) :]
        cut = len(text) - max((_overlap(text, marker) for marker in self.markers), default=0)
        self._held = text[cut:]
        return text[:cut], None, ""

    def flush(self) -> str:
        """Return the held text, at the end."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of `text` that begins `marker`."""
    start = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while start >= 0:
        if marker.startswith(text[start:]):
            return len(text) - start
        start = text.find(marker[0], start + 1)
    return 0
