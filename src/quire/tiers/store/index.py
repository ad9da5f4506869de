"""In-memory index from block key to location (segment number above 32 bits of row, with one spare location), and the
descendants of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from quire.tiers.store.layout.record import KEY_BYTES

ROW_BITS = 32
_ROW_MASK = (1 << ROW_BITS) - 1
_ROWS = np.dtype([("key", "<u8", 4), ("parent", "<u8", 4), ("cost", "<f8"), ("epoch", "<u8")])  # as in segment.py


def pack_location(segment: int, row: int) -> int:
    return segment << ROW_BITS | row


def unpack_location(location: int) -> tuple[int, int]:
    return location >> ROW_BITS, location & _ROW_MASK


class Index:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._locations: dict[bytes, int] = {}
        self._spares: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._locations)

    def __contains__(self, key: bytes) -> bool:
        return key in self._locations

    def find(self, key: bytes) -> int | None:
        return self._locations.get(key)

    def all_keys(self) -> list[bytes]:
        return list(self._locations)

    def add(self, key: bytes, location: int) -> bool:
        """Add a location. Returns whether the key is new."""
        if self._locations.setdefault(key, location) == location:
            return True
        self._spares.setdefault(key, []).append(location)
        return False

    def remove(self, key: bytes, location: int) -> bool:
        """Remove a location, if known. Returns whether it was the key's last one."""
        spares = self._spares.get(key, [])
        if self._locations.get(key) != location:
            if location in spares:
                spares.remove(location)
        elif spares:
            self._locations[key] = spares.pop(0)
        else:
            del self._locations[key]
            return True
        if not spares:
            self._spares.pop(key, None)
        return False

    def locations(self, key: bytes) -> list[int]:
        location = self._locations.get(key)
        return [] if location is None else [location, *self._spares.get(key, [])]


def find_descendants(tables: Sequence[bytes], keys: Iterable[bytes]) -> set[bytes]:
    """Find the keys of packed rows with an ancestor in `keys`, compared by the digests' first eight bytes. Each round
    doubles the distance of the ancestors: log2(n) rounds for a chain of n blocks."""
    rows = np.frombuffer(b"".join(tables), dtype=_ROWS)
    named = np.frombuffer(b"".join(key[:8] for key in keys), dtype="<u8")
    if not len(rows) or not len(named):
        return set()
    own, parents = np.ascontiguousarray(rows["key"][:, 0]), np.ascontiguousarray(rows["parent"][:, 0])
    no_row = len(rows)
    order = np.argsort(own)
    at = np.minimum(np.searchsorted(own, parents, sorter=order), no_row - 1)
    ancestor = np.append(np.where(own[order[at]] == parents, order[at], no_row), no_row)  # [num_rows + 1]
    is_after = np.append(np.isin(parents, named), False)
    for _ in range(no_row.bit_length() + 1):
        is_after |= is_after[ancestor]
        ancestor = ancestor[ancestor]
    found = rows["key"][is_after[:-1]].tobytes()
    return {found[i : i + KEY_BYTES] for i in range(0, len(found), KEY_BYTES)}
