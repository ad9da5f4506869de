"""Find where a text's last tokens have occurred before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_MOST_PLACES = 8  #: earlier places of the last pair to compare
LONGEST_MATCH = 16  #: tokens


class NgramIndex:
    """The places of all pairs of adjacent tokens in a growing text, chained as in LZ77 coders: the last one by pair,
    and from each place the one before."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}  #: pair -> position after it
        self._before = array("q", (0, 0))  #: position after a pair -> position after the same pair before, or 0

    def propose(self, text: Sequence[int], most: int) -> tuple[list[int], int]:
        """Return up to `most` tokens that followed the longest earlier occurrence of the text's last tokens, and the
        length of that match, 2 to `LONGEST_MATCH`; [] and 0 without one. Every call's text begins with the one before.
        """
        size = len(text)
        self._extend(text)
        best = longest = 0
        place = self._last.get((text[-2], text[-1]), 0) if size > 2 else 0
        for _ in range(_MOST_PLACES):
            if not place or longest == LONGEST_MATCH:
                break
            length = _match_length(text, place, size)
            if length > longest:
                best, longest = place, length
            place = self._before[place]
        if not best:
            return [], 0
        found = list(text[best : best + most])
        while len(found) < most:  # the text repeats itself
            found.append(found[len(found) - (size - best)])
        return found, longest

    def _extend(self, text: Sequence[int]) -> None:
        """Index the pairs that another token follows."""
        last, before = self._last, self._before
        for place in range(len(before), len(text)):
            pair = text[place - 2], text[place - 1]
            before.append(last.get(pair, 0))
            last[pair] = place


def _match_length(text: Sequence[int], place: int, size: int) -> int:
    """Count equal tokens before `place` and before the end."""
    length = 2
    while length < min(place, LONGEST_MATCH) and text[place - length - 1] == text[size - length - 1]:
        length += 1
    return length
