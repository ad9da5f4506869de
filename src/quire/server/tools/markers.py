"""Finds markers in a text that comes in pieces, and holds back what may be the beginning of one."""

from __future__ import annotations

from collections.abc import Sequence


class MarkerSearch:
    """Looks for the first of several markers.

    Args:
        markers: none of them empty.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self.markers = tuple(markers)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None, str]:
        """The text that is no part of a marker; the marker that was found, if any; what stands behind it."""
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
        """What was held back, where nothing follows any more."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, marker: str) -> int:
    """How many characters at the end of `text` may begin `marker`."""
    start = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while start >= 0:
        if marker.startswith(text[start:]):
            return len(text) - start
        start = text.find(marker[0], start + 1)
    return 0
