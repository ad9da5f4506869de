"""What is chained after what: found for all blocks at once, since a deletion must not hold up the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from quire.tiers.store.layout.record import KEY_BYTES

_ROW = np.dtype([("key", "<u8", 4), ("parent", "<u8", 4), ("cost", "<f8"), ("epoch", "<u8")])  # as in segment.py


def find_descendants(tables: Sequence[bytes], keys: Iterable[bytes]) -> set[bytes]:
    """Keys of rows whose parent, or its parent and so on, is one of `keys`.

    Keys are digests, and are compared by their first eight bytes. Each round asks an ancestor that is twice as far
    away, so that a chain of n blocks takes log2(n) rounds.

    Args:
        tables: rows of segments, packed.
    """
    rows = np.frombuffer(b"".join(tables), dtype=_ROW)
    named = np.frombuffer(b"".join(key[:8] for key in keys), dtype="<u8")
    if not len(rows) or not len(named):
        return set()
    own, parents = np.ascontiguousarray(rows["key"][:, 0]), np.ascontiguousarray(rows["parent"][:, 0])
    nobody = len(rows)
    order = np.argsort(own)
    at = np.minimum(np.searchsorted(own, parents, sorter=order), nobody - 1)
    ancestor = np.append(np.where(own[order[at]] == parents, order[at], nobody), nobody)  # [num_rows + 1], of each row
    is_after = np.append(np.isin(parents, named), False)
    for _ in range(nobody.bit_length() + 1):
        is_after |= is_after[ancestor]
        ancestor = ancestor[ancestor]
    found = rows["key"][is_after[:-1]].tobytes()
    return {found[i : i + KEY_BYTES] for i in range(0, len(found), KEY_BYTES)}
