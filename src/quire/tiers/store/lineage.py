"""Find the descendants of blocks, vectorised for short delays of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from quire.tiers.store.layout.record import KEY_BYTES

_ROW = np.dtype([("key", "<u8", 4), ("parent", "<u8", 4), ("cost", "<f8"), ("epoch", "<u8")])  # as in segment.py


def find_descendants(tables: Sequence[bytes], keys: Iterable[bytes]) -> set[bytes]:
    """Find the keys of packed rows with an ancestor in `keys`.

    Keys are digests, compared by their first eight bytes. Each round doubles the distance of the ancestors, so that a
    chain of n blocks takes log2(n) rounds.
    """
    rows = np.frombuffer(b"".join(tables), dtype=_ROW)
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
