"""The indexes of a collection: vectors in Faiss, words in SQLite's FTS5, and the fusion of their rankings."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise
from typing import Any

import faiss
import numpy as np

_K = 60  # of reciprocal rank fusion
_MAX_CHARACTERS = 16_384  # of a query
_MAX_TERMS = 64  # of a query
_MAX_POSTINGS = 4_000  # chunks that one search scores, 6 µs each
_TOKENIZER = "unicode61 remove_diacritics 2 categories 'L* M* N* Co'"
#: Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Kana, Han, and Hangul, whose words have endings.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class VectorIndex:
    """Chunk vectors by chunk id, built from the database and held in memory. Not thread-safe. The search is exhaustive
    over float16 vectors, which halves memory and time (100,000 vectors of 384: 10.5 ms on one core); scores are off by
    some 1e-4, so callers rescore the candidates. `version` is the collection's at the last update, -1 at first."""

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


class WordIndex:
    """A collection's words in an FTS5 table of its database, by chunk id. The table holds no texts. Callers provide the
    transactions, and remove exactly the texts that they added."""

    def __init__(self, collection_id: str) -> None:
        self._table = f"words_{collection_id}"

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the empty table, replacing an old one."""
        self.drop(connection)
        connection.execute(
            f"CREATE VIRTUAL TABLE {self._table} USING fts5(text, content='', tokenize=\"{_TOKENIZER}\")"
        )
        if _HAS_SECURE_DELETE:
            connection.execute(f"INSERT INTO {self._table} ({self._table}, rank) VALUES ('secure-delete', 1)")

    def drop(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def add(self, connection: sqlite3.Connection, chunks: Iterable[tuple[int, str]]) -> None:
        rows = ((id_, _spaced(text)) for id_, text in chunks)
        connection.executemany(f"INSERT INTO {self._table} (rowid, text) VALUES (?, ?)", rows)

    def remove(self, connection: sqlite3.Connection, chunks: Sequence[tuple[int, str]]) -> None:
        """Remove chunks, and their words from the file."""
        rows = ((id_, _spaced(text)) for id_, text in chunks)
        sql = f"INSERT INTO {self._table} ({self._table}, rowid, text) VALUES ('delete', ?, ?)"
        connection.executemany(sql, rows)
        if chunks and not _HAS_SECURE_DELETE:  # rewrites the whole index: 1 s for 20,000 chunks
            connection.execute(f"INSERT INTO {self._table} ({self._table}) VALUES ('optimize')")

    def search(
        self, connection: sqlite3.Connection, query: str, limit: int, among: np.ndarray | None = None
    ) -> list[int]:
        """Return the ids of the best chunks by BM25, optionally among ids. Common words of a large collection are
        ignored, which bounds the time."""
        matching, counted = f"FROM {self._table} WHERE {self._table} MATCH ?", _MAX_POSTINGS + 1
        counts: dict[str, int] = {}
        for term in _terms(query):
            sql = f"SELECT count(*) FROM (SELECT 1 {matching} LIMIT {counted})"
            (counts[term],) = connection.execute(sql, (term,)).fetchone()
        terms, num_postings = list[str](), 0
        for term in sorted(filter(counts.get, counts), key=counts.__getitem__):  # rare words first
            num_postings += counts[term]
            if terms and num_postings > _MAX_POSTINGS:
                break
            terms.append(term)
        if not terms:
            return []
        allowed = None if among is None else set(among.tolist())
        rows = connection.execute(f"SELECT rowid {matching} ORDER BY rank, rowid", (" OR ".join(terms),))
        return list(islice((id_ for (id_,) in rows if allowed is None or id_ in allowed), limit))


_HAS_SECURE_DELETE = sqlite3.sqlite_version_info >= (3, 42)


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite was compiled with FTS5."""
    return connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def fuse(*rankings: Sequence[int]) -> list[int]:
    """Merge rankings by reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): sum 1 / (60 + rank)."""
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, 1):
            scores[id_] += 1 / (_K + rank)
    return sorted(scores, key=lambda id_: -scores[id_])  # stable: the first ranking decides ties


def _spaced(text: str) -> str:
    """Replace words of unspaced scripts by pairs of neighbouring characters."""

    def pairs(found: re.Match[str]) -> str:
        run = found[0]
        return f" {' '.join(map(''.join, pairwise(run))) or run} "

    return _UNSPACED.sub(pairs, text)


def _terms(query: str) -> list[str]:
    """The distinct words of a query, quoted for FTS5."""
    kept = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in query[:_MAX_CHARACTERS])
    return [f'"{word}"' for word in islice(dict.fromkeys(_spaced(kept.lower()).split()), _MAX_TERMS)]
