"""One collection of documents in a SQLite database, with indexes: add, replace, remove and search."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from quire.rag.database import Database
from quire.rag.embedding import EmbedderFacts
from quire.rag.index import VectorIndex, WordIndex, fuse
from quire.rag.records import (
    CollectionInfo,
    DocumentInfo,
    Filter,
    NewDocument,
    OnDeleted,
    Passage,
    Plain,
    check_metadata,
    size_of,
)
from quire.settings import RankBy

_DEPTH = 50  # candidates of each index, if there are two
_SPARE = 16  # index candidates beyond top_k, since the float16 index ranks approximately
_BATCH = 500  # ids in one statement
_SET_ORIGIN_HASH = "UPDATE documents SET origin_hash = ? WHERE collection_id = ? AND origin = ?"
_DOCUMENT = (
    "SELECT id, origin, name, metadata, num_chars, num_bytes, "
    "(SELECT count(*) FROM chunks WHERE document_id = d.id), added, content_hash, origin_hash FROM documents d "
)


class CollectionGone(ValueError):
    """The collection was deleted."""


class CollectionBusy(ValueError):
    """Another process or thread is ingesting into the collection."""


class Collection:
    """The documents of one collection, and the search among them. `Collections` opens it."""

    def __init__(self, database: Database, directory: Path, id_: str, on_deleted: OnDeleted | None = None) -> None:
        self.id = id_
        self._database = database
        self._directory = directory
        self._on_deleted = on_deleted
        self._words = WordIndex(id_)
        self._index: VectorIndex | None = None
        self._index_lock = threading.Lock()  # acquired before the snapshot, so that the index never goes back

    @property
    def num_vectors(self) -> int:
        """Vectors that the index holds in memory."""
        return len(self._index) if self._index is not None else 0

    @property
    def info(self) -> CollectionInfo:
        """The collection's current record. Raises CollectionGone after a deletion."""
        with self._database.reading() as connection:
            return read_info(connection, self.id)

    def check_embedder(self, embedder: EmbedderFacts) -> None:
        """Raise ValueError if another embedder made the collection's vectors."""
        info = self.info
        if info.fingerprint != embedder.fingerprint:
            raise ValueError(
                f"collection {info.name!r} was embedded by {info.embedder}, not by {embedder.name} as it is here; use "
                "that embedder, or delete the collection and ingest again"
            )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the collection's ingest lock across threads and processes, or raise CollectionBusy."""
        with (self._directory / f"{self.id}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CollectionBusy(
                    f"another process adds to collection {self.info.name!r} now; try again when it is done"
                ) from None
            yield

    # -- documents -----------------------------------------------------------------------------------------------------

    def documents(self, *, limit: int = -1, after: int = 0) -> list[DocumentInfo]:
        """List up to `limit` documents (-1: all) in their order of addition, beginning after the id `after`."""
        return self._documents("collection_id = ? AND id > ? ORDER BY id LIMIT ?", self.id, after, limit)

    def documents_of(self, origin: str) -> list[DocumentInfo]:
        return self._documents("collection_id = ? AND origin = ? ORDER BY id", self.id, origin)

    def documents_named(self, name: str) -> list[DocumentInfo]:
        """Documents of one name. A file with several documents gives its name to all of them."""
        return self._documents("collection_id = ? AND name = ? ORDER BY id", self.id, name)

    def document(self, document_id: int) -> DocumentInfo | None:
        return next(iter(self._documents("collection_id = ? AND id = ?", self.id, document_id)), None)

    def _documents(self, condition: str, *values: Plain) -> list[DocumentInfo]:
        with self._database.reading() as connection:
            rows = connection.execute(f"{_DOCUMENT} WHERE {condition}", values).fetchall()
        return [
            DocumentInfo(id_, origin, name, json.loads(metadata), *rest) for id_, origin, name, metadata, *rest in rows
        ]

    def text(self, document_id: int) -> str:
        """A document's whole text. Raises ValueError for an unknown id."""
        with self._database.reading() as connection:
            text = self._text(connection, document_id)
        if text is None:
            raise ValueError(f"there is no document {document_id} in this collection")
        return text

    def passages_of(self, document_id: int) -> list[str]:
        """The texts of a document's chunks; empty for an unknown id."""
        with self._database.reading() as connection:
            return [text for _, text in self._chunks(connection, document_id)]

    def vectors_of(self, document_id: int) -> dict[str, np.ndarray]:
        """Chunk text -> vector of one document; empty for an unknown id."""
        with self._database.reading() as connection:
            if (text := self._text(connection, document_id)) is None:
                return {}
            rows = connection.execute("SELECT start, end, vector FROM chunks WHERE document_id = ?", (document_id,))
            return {text[start:end]: np.frombuffer(vector, np.float32) for start, end, vector in rows}

    def _text(self, connection: sqlite3.Connection, document_id: int) -> str | None:
        sql = "SELECT text FROM documents WHERE collection_id = ? AND id = ?"
        row = connection.execute(sql, (self.id, document_id)).fetchone()
        return None if row is None else str(row[0])

    def _chunks(self, connection: sqlite3.Connection, document_id: int) -> list[tuple[int, str]]:
        """Ids and texts of a document's chunks."""
        if (text := self._text(connection, document_id)) is None:
            return []
        spans = connection.execute("SELECT id, start, end FROM chunks WHERE document_id = ?", (document_id,))
        return [(id_, text[start:end]) for id_, start, end in spans]

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(
        self,
        added: Sequence[NewDocument] = (),
        removed: Sequence[int] = (),
        complete: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add, replace and remove documents (ids) in one transaction. `complete` maps an origin whose documents are
        then all stored to its content's hash; other origins touched count as incomplete. Raises ValueError, or
        CollectionGone after a deletion."""
        for document in added:
            check_metadata(document.metadata)
        replaced = [document.replaces for document in added if document.replaces is not None]
        deleted: dict[int, str] = {}
        with self._database.writing() as connection:
            info = self._grow_version(connection)
            keeps_words = self._keep_words(connection, info)
            if keeps_words or self._on_deleted is not None:
                deleted = {
                    chunk_id: text for id_ in (*removed, *replaced) for chunk_id, text in self._chunks(connection, id_)
                }
            if keeps_words:
                self._words.remove(connection, list(deleted.items()))
            for id_ in removed:
                connection.execute(
                    "UPDATE documents SET origin_hash = x'' WHERE collection_id = ?1 AND origin = "
                    "(SELECT origin FROM documents WHERE collection_id = ?1 AND id = ?2)",
                    (self.id, id_),
                )
                connection.execute("DELETE FROM documents WHERE collection_id = ? AND id = ?", (self.id, id_))
            for document in added:
                document_id = self._insert(connection, document)
                if keeps_words:
                    self._words.add(connection, self._chunks(connection, document_id))
            if keeps_words:
                self._set_words_version(connection, info.version)
            for origin, origin_hash in (complete or {}).items():
                connection.execute(_SET_ORIGIN_HASH, (origin_hash, self.id, origin))
        kept = {document.text[chunk.start : chunk.end] for document in added for chunk in document.chunks}
        gone = [text for text in dict.fromkeys(deleted.values()) if text not in kept]
        if gone and self._on_deleted is not None:
            self._on_deleted(info, gone)

    def set_origin_hash(self, origin: str, origin_hash: bytes) -> None:
        """Record that all documents of an origin are stored; b"" records that some may be missing."""
        with self._database.writing() as connection:
            connection.execute(_SET_ORIGIN_HASH, (origin_hash, self.id, origin))

    def _grow_version(self, connection: sqlite3.Connection) -> CollectionInfo:
        done = connection.execute("UPDATE collections SET version = version + 1 WHERE id = ?", (self.id,))
        if not done.rowcount:
            raise CollectionGone("the collection was deleted meanwhile")
        return read_info(connection, self.id)

    def _insert(self, connection: sqlite3.Connection, new: NewDocument) -> int:
        id_ = new.replaces
        if id_ is not None:
            connection.execute("DELETE FROM chunks WHERE collection_id = ? AND document_id = ?", (self.id, id_))
            connection.execute("DELETE FROM documents WHERE collection_id = ? AND id = ?", (self.id, id_))
        metadata = json.dumps(dict(new.metadata), ensure_ascii=False)
        num_bytes = size_of(new.name, new.metadata, new.text, new.vectors.size)
        row = (id_, self.id, new.origin, new.name, metadata, len(new.text), num_bytes, new.content_hash, b"",
               time.time(), new.text)  # fmt: skip
        id_ = connection.execute(f"INSERT INTO documents VALUES ({', '.join('?' * len(row))})", row).lastrowid
        assert id_ is not None
        connection.executemany(
            "INSERT INTO chunks (collection_id, document_id, start, end, num_tokens, vector, page) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (  # not a list: the vectors of a long document take much memory
                (self.id, id_, part.start, part.end, part.num_tokens, vector.astype("f4").tobytes(), new.page_of(part))
                for part, vector in zip(new.chunks, new.vectors, strict=True)
            ),
        )
        return id_

    # -- words ---------------------------------------------------------------------------------------------------------

    def _keep_words(self, connection: sqlite3.Connection, info: CollectionInfo) -> bool:
        """Whether a change must update the word index, which the first change creates."""
        if not self._database.has_words:
            return False
        if info.version == 1:
            self._words.create(connection)
            return True
        return self._has_words_of(connection, versions_ago=1)

    def _has_words_of(self, connection: sqlite3.Connection, versions_ago: int = 0) -> bool:
        """Whether the word index holds the chunks of the current version, or of an earlier one."""
        sql = "SELECT 1 FROM collections WHERE id = ? AND words_version = version - ?"
        return connection.execute(sql, (self.id, versions_ago)).fetchone() is not None

    def _set_words_version(self, connection: sqlite3.Connection, version: int) -> None:
        connection.execute("UPDATE collections SET words_version = ? WHERE id = ?", (version, self.id))

    def drop_words(self) -> None:
        """Delete the word index; a search by words builds it again."""
        if self._database.has_words:
            with self._database.writing() as connection:
                self._words.drop(connection)
                self._set_words_version(connection, -1)

    def _build_words(self) -> None:
        with self._database.writing() as connection:
            info = read_info(connection, self.id)
            if self._has_words_of(connection):  # another search was faster
                return
            self._words.create(connection)
            documents = connection.execute("SELECT id FROM documents WHERE collection_id = ?", (self.id,)).fetchall()
            for (document_id,) in documents:
                self._words.add(connection, self._chunks(connection, document_id))
            self._set_words_version(connection, info.version)

    def _rank_by_words(self, query: str, limit: int, among: np.ndarray | None) -> list[int]:
        """Ids of the best chunks by the words of a query. Builds a missing or outdated index."""
        for _ in range(2 if self._database.has_words else 0):
            with self._database.reading() as connection:
                if self._has_words_of(connection):
                    return self._words.search(connection, query, limit, among)
            self._build_words()
        return []

    # -- search --------------------------------------------------------------------------------------------------------

    def search(
        self, vector: np.ndarray, top_k: int = 5, where: Filter | None = None, words: str = "", by: RankBy | None = None
    ) -> list[Passage]:
        """Return the chunks nearest to a unit vector, float32 [dimension], best first; `where` filters by metadata.
        With `words`, the text of the query, fuse this ranking with that by words unless `by` is vectors."""
        words = "" if by == "vectors" else words
        among: np.ndarray | None = None
        if where:  # of an earlier snapshot: ids are never reused
            with self._database.reading() as connection:
                among = self._chunks_where(connection, where)
        depth = max(top_k, _DEPTH) if words else top_k
        by_words = self._rank_by_words(words, depth, among) if words else []
        with self._index_lock, self._database.reading() as connection:  # one snapshot for index and texts
            index = self._current_index(connection)
            near = [id_ for id_, _ in index.search(vector, depth + _SPARE, among)]
            ids, vectors = _vectors(connection, list(dict.fromkeys([*near, *by_words])), len(vector))
            scores = dict(zip(ids, (vectors @ vector).tolist(), strict=True))
            near = sorted(scores.keys() & set(near), key=lambda id_: (-scores[id_], id_))[:depth]
            best = fuse(near, [id_ for id_ in by_words if id_ in scores])
            return [self._passage(connection, id_, scores[id_]) for id_ in best[:top_k]]

    def _current_index(self, connection: sqlite3.Connection) -> VectorIndex:
        info = connection.execute("SELECT version, dimension FROM collections WHERE id = ?", (self.id,)).fetchone()
        if info is None:
            self._index = None
            raise CollectionGone("the collection was deleted")
        version, dimension = info
        if self._index is None:
            self._index = VectorIndex(dimension)
        if self._index.version != version:
            ids = connection.execute("SELECT id FROM chunks WHERE collection_id = ?", (self.id,))
            every = np.fromiter((row[0] for row in ids), np.int64)
            self._index.update(version, every, lambda wanted: _vectors(connection, wanted, dimension))
        return self._index

    def _chunks_where(self, connection: sqlite3.Connection, where: Filter) -> np.ndarray:
        conditions = []
        values: list[Plain] = [self.id]
        for key, wanted in where.items():
            choices = [wanted] if isinstance(wanted, str | int | float) else list(wanted)
            for choice in choices:
                check_metadata({key: choice})
            marks = ", ".join("?" * len(choices))
            conditions.append(f"(key = ? AND value IN ({marks}))")
            values += [key, *choices]
        rows = connection.execute(  # parses the metadata of a document once
            "SELECT c.id FROM chunks c WHERE c.document_id IN (SELECT id FROM documents d WHERE collection_id = ? AND "
            f"(SELECT count(DISTINCT key) FROM json_each(d.metadata) WHERE {' OR '.join(conditions)}) = {len(where)})",
            values,
        )
        return np.fromiter((row[0] for row in rows), np.int64)

    def _passage(self, connection: sqlite3.Connection, chunk_id: int, score: float) -> Passage:
        row: Any = connection.execute(
            "SELECT substr(d.text, c.start + 1, c.end - c.start), c.start, c.end, c.num_tokens, c.id, d.id, d.name, "
            "d.metadata, c.page FROM chunks c JOIN documents d ON d.id = c.document_id "
            "WHERE c.id = ? AND c.collection_id = ?",
            (chunk_id, self.id),
        ).fetchone()
        text, start, end, num_tokens, id_, document_id, name, metadata, page = row
        return Passage(score, text, start, end, num_tokens, id_, document_id, name, json.loads(metadata), page)


def read_info(connection: sqlite3.Connection, id_: str) -> CollectionInfo:
    """A collection's record. Raises CollectionGone for an unknown id."""
    row: Any = connection.execute(
        "SELECT id, name, owner, is_public, created, embedder, fingerprint, dimension, chunk_tokens, overlap_tokens, "
        "readers, version, (SELECT count(*) FROM documents WHERE collection_id = c.id), "
        "(SELECT count(*) FROM chunks WHERE collection_id = c.id) FROM collections c WHERE id = ?",
        (id_,),
    ).fetchone()
    if row is None:
        raise CollectionGone("the collection was deleted")
    values = dict(zip((each.name for each in fields(CollectionInfo)), row, strict=True))
    return CollectionInfo(
        **values | {"is_public": bool(values["is_public"]), "readers": tuple(json.loads(values["readers"]))}
    )


def _vectors(connection: sqlite3.Connection, ids: Sequence[int], dimension: int) -> tuple[list[int], np.ndarray]:
    """The vectors of chunks, and their ids in the same order."""
    found: list[int] = []
    vectors = np.empty((len(ids), dimension), np.float32)
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(f"SELECT id, vector FROM chunks WHERE id IN ({marks})", some).fetchall()
        flat = np.frombuffer(b"".join(vector for _, vector in rows), np.float32)
        vectors[len(found) : len(found) + len(rows)] = flat.reshape(-1, dimension)
        found += [id_ for id_, _ in rows]
    return found, vectors[: len(found)]
