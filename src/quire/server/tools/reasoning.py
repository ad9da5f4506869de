"""Reasoning before an answer: <think>...</think>, or Mistral's [THINK]...[/THINK]."""

from __future__ import annotations

from dataclasses import dataclass

from quire.server.tools.markers import MarkerSearch


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers around reasoning."""

    opening: str
    closing: str


class ReasoningParser:
    """Separates reasoning from the answer, in text that may be split anywhere.

    Args:
        is_open: whether the prompt ends with the opening marker, as many templates write it.
    """

    def __init__(self, markers: ReasoningMarkers, *, is_open: bool) -> None:
        self._markers = markers
        self._closing = MarkerSearch([markers.closing])
        self._is_inside = is_open
        self._is_over = False
        self._held = ""  # beginning of the text, while it may still be the opening marker

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the answer in a further piece of text."""
        if self._is_over:
            return "", text
        if not self._is_inside:
            self._held += text
            start = self._held.lstrip()
            if start.startswith(self._markers.opening):
                self._is_inside, self._held, text = True, "", start[len(self._markers.opening) :]
            elif self._markers.opening.startswith(start):
                return "", ""
            else:
                self._is_over = True
                return "", self.finish()[1]
        reasoning, marker, answer = self._closing.feed(text)
        self._is_over = marker is not None
        return reasoning, answer

    def finish(self) -> tuple[str, str]:
        """Return the held reasoning and answer, at the end of the text."""
        held, self._held = self._held, ""
        return (self._closing.flush(), "") if self._is_inside else ("", held)
