"""Finding stop strings in text that arrives bit by bit."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Several stop strings, searched together.

    The one that is complete first wins, reading character by character, so that the result does not depend on how the
    text is cut into tokens. Of two that end at the same character, the longer wins.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys([stops] if isinstance(stops, str) else stops))
        if "" in self._stops:
            raise ValueError("a stop string is empty; give one or more characters, or leave `stop` out")
        self.longest = max(map(len, self._stops), default=0)

    def __bool__(self) -> bool:
        return bool(self._stops)

    def first_match(self, text: str, after: int) -> tuple[int, int] | None:
        """Start and end of the first stop string that ends behind position `after`, or None."""
        found = ((text.find(stop, max(0, after + 1 - len(stop))), len(stop)) for stop in self._stops)
        ends = [(start + length, start) for start, length in found if start >= 0]
        return min(ends)[::-1] if ends else None

    def held_length(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a stop string."""
        earliest = len(text)
        for stop in self._stops:
            start = text.find(stop[0], max(0, len(text) + 1 - len(stop)), earliest)
            while start >= 0:
                if stop.startswith(text[start:]):
                    earliest = start
                    break
                start = text.find(stop[0], start + 1, earliest)
        return len(text) - earliest
