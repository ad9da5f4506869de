"""A collection's vectors in a Faiss index in memory, built from the database and updated by chunk id. The search is
exhaustive over float16 vectors, which halves memory and time (100,000 vectors of 384: 10.5 ms on one core); scores are
off by some 1e-4, so callers rescore the candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import faiss
import numpy as np


class VectorIndex:
    """Chunk vectors by chunk id. Not thread-safe. `version` is the collection's at the last update, -1 at first."""

    def __init__(self, dimension: int) -> None:
        self.version = -1
        vectors = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        self._index: Any = faiss.IndexIDMap(vectors)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def update(
        self, version: int, ids: np.ndarray, fetch: Callable[[Sequence[int]], tuple[Sequence[int], np.ndarray]]
    ) -> None:
        """Make the index hold exactly the chunks `ids`, int64 [n]; `fetch` maps ids to found ids and vectors."""
        held = faiss.vector_to_array(self._index.id_map)
        gone, new = np.setdiff1d(held, ids), np.setdiff1d(ids, held)
        if len(gone):
            self._index.remove_ids(faiss.IDSelectorBatch(gone))
        if len(new):
            found, vectors = fetch(new.tolist())
            self._index.add_with_ids(np.ascontiguousarray(vectors, np.float32), np.asarray(found, np.int64))
        self.version = version

    def search(self, vector: np.ndarray, top_k: int, among: np.ndarray | None = None) -> list[tuple[int, float]]:
        """Return the chunks nearest to a unit vector with approximate cosines, best first, optionally among ids."""
        top_k = min(top_k, len(self) if among is None else len(among))
        if top_k == 0:
            return []
        parameters: Any = None
        if among is not None:
            selector: Any = faiss.IDSelectorBatch(among)  # must outlive the search, which does not own it
            parameters = faiss.SearchParameters(**{"sel": selector})
        faiss.omp_set_num_threads(1)  # beside busy engines two threads took three times as long
        scores, ids = self._index.search(vector[None].astype(np.float32), top_k, params=parameters)
        return [(int(id_), float(score)) for id_, score in zip(ids[0], scores[0], strict=True) if id_ >= 0]
