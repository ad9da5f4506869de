"""Where each key lies: found in memory, and nowhere else.

A place is one number, the segment's in the upper bits and the row's in the lower 32. Where two processes stored one key
at the same time, the second place is kept as a spare.
"""

from __future__ import annotations

ROW_BITS = 32
_ROW_MASK = (1 << ROW_BITS) - 1


def place_of(segment: int, row: int) -> int:
    return segment << ROW_BITS | row


def segment_and_row(place: int) -> tuple[int, int]:
    return place >> ROW_BITS, place & _ROW_MASK


class Index:
    """From key to place. Not thread-safe."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._spares: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def find(self, key: bytes) -> int | None:
        return self._places.get(key)

    def all_keys(self) -> list[bytes]:
        return list(self._places)

    def add(self, key: bytes, place: int) -> bool:
        """Whether the key was not found before."""
        if self._places.setdefault(key, place) == place:
            return True
        self._spares.setdefault(key, []).append(place)
        return False

    def remove(self, key: bytes, place: int) -> bool:
        """Forget one place, if it is known. Whether the key is not found any more."""
        spares = self._spares.get(key, [])
        if self._places.get(key) != place:
            if place in spares:
                spares.remove(place)
        elif spares:
            self._places[key] = spares.pop(0)
        else:
            del self._places[key]
            return True
        if not spares:
            self._spares.pop(key, None)
        return False

    def places(self, key: bytes) -> list[int]:
        """All that are known."""
        place = self._places.get(key)
        return [] if place is None else [place, *self._spares.get(key, [])]
