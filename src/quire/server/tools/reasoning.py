"""Tells what a model thinks from what it says: <think>...</think>, or Mistral's [THINK]...[/THINK]."""

from __future__ import annotations

from dataclasses import dataclass

from quire.server.tools.markers import MarkerSearch


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """Between which a model thinks."""

    opening: str
    closing: str


class ReasoningParser:
    """Finds the thoughts at an answer's beginning, in text that may be split anywhere.

    Args:
        is_open: the prompt's end has the opening marker already, as many templates write it.
    """

    def __init__(self, markers: ReasoningMarkers, *, is_open: bool) -> None:
        self._markers = markers
        self._closing = MarkerSearch([markers.closing])
        self._is_inside = is_open
        self._is_over = False
        self._held = ""  # the answer's beginning, while it may still be the opening marker

    def feed(self, text: str) -> tuple[str, str]:
        """The thoughts in a further piece of text, and what was said."""
        if self._is_over:
            return "", text
        if not self._is_inside:
            self._held += text
            start = self._held.lstrip()
            if start.startswith(self._markers.opening):
                self._is_inside, self._held, text = True, "", start[len(self._markers.opening) :]
            elif self._markers.opening.startswith(start):  # or nothing but blanks
                return "", ""
            else:
                self._is_over = True
                return "", self.finish()[1]
        thought, marker, said = self._closing.feed(text)
        self._is_over = marker is not None
        return thought, said

    def finish(self) -> tuple[str, str]:
        """What was held back, now that the text has ended: thoughts, and what was said."""
        held, self._held = self._held, ""
        return (self._closing.flush(), "") if self._is_inside else ("", held)
