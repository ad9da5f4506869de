"""Collections of documents: made, listed, changed, searched, deleted.

Text, metadata and vectors are in one SQLite database a directory; each collection has a Faiss index beside it, which is
derived. Where documents come from is the business of `ingest.py`, and what makes vectors that of the embedder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from quire.rag.database import Database
from quire.rag.embedding import EmbedderFacts
from quire.rag.index import VectorIndex
from quire.rag.records import (
    CollectionInfo,
    DocumentInfo,
    Filter,
    NewDocument,
    OnDeleted,
    Passage,
    Plain,
    StorageUsage,
    check_metadata,
    check_name,
    size_of,
)

DEFAULT_CHUNK_TOKENS = 256
DEFAULT_OVERLAP_TOKENS = 32
_SPARE = 16  # candidates of the index beyond those that are wanted, which are scored exactly
_MARK = "UPDATE documents SET origin_hash = ? WHERE collection_id = ? AND origin = ?"
_BATCH = 500  # ids in a statement
_DOCUMENT = (
    "SELECT id, origin, name, metadata, num_chars, num_bytes, "
    "(SELECT count(*) FROM chunks WHERE document_id = d.id), added, content_hash, origin_hash FROM documents d "
)


class CollectionGone(ValueError):
    """The collection was deleted."""


class CollectionBusy(ValueError):
    """Another process adds to the collection."""


def default_directory() -> Path:
    """`$XDG_DATA_HOME/quire/rag`, or ~/.local/share/quire/rag where that is not set or not absolute.

    Raises:
        ValueError: this user has no home.
    """
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        try:
            data = Path("~/.local/share").expanduser()
        except RuntimeError:
            raise ValueError("this user has no home directory; say with --rag-dir where collections are kept") from None
    return data / "quire" / "rag"


class Collections:
    """The collections in a directory. Threads and processes may share it; threads take turns.

    Args:
        on_deleted: told, after each change made here, of the texts of the chunks that are no more.

    Raises:
        ValueError: its database cannot be used.
    """

    def __init__(self, directory: Path, on_deleted: OnDeleted | None = None) -> None:
        self.directory = directory
        self._on_deleted = on_deleted
        try:
            self._database = Database(directory)
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"{directory} cannot be written ({error}); choose another place for collections") from None
        self._opening = threading.Lock()
        self._open: dict[str, Collection] = {}  #: by id, the one that was used last at the end

    def create(
        self,
        name: str,
        embedder: EmbedderFacts,
        *,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
        overlap_tokens: int = DEFAULT_OVERLAP_TOKENS,
        readers: Sequence[str] = (),
        owner: str = "",
        is_public: bool = False,
    ) -> Collection:
        """A new collection.

        Raises:
            ValueError: the owner has one of that name, the name cannot be one, or the sizes do not fit.
        """
        check_name(name)
        if not 8 <= chunk_tokens <= embedder.max_tokens:
            raise ValueError(
                f"chunks of {chunk_tokens} tokens; {embedder.name} takes 8 to {embedder.max_tokens} of them"
            )
        if not 0 <= overlap_tokens <= chunk_tokens // 2:
            raise ValueError(f"an overlap of {overlap_tokens} tokens in chunks of {chunk_tokens}; take at most half")
        id_ = secrets.token_hex(16)
        row = (id_, owner, name, is_public, time.time(), embedder.name, embedder.fingerprint, embedder.dimension,
               chunk_tokens, overlap_tokens, json.dumps(list(readers)), 0)  # fmt: skip
        try:
            with self._database.writing() as connection:
                connection.execute(f"INSERT INTO collections VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.IntegrityError:
            raise ValueError(
                f"there is a collection {name!r} already; delete it first, or choose another name"
            ) from None
        return self._collection(id_)

    def find(self, name: str, owner: str = "") -> Collection | None:
        """The owner's collection of that name, if there is one."""
        return self._where("owner = ? AND name = ?", owner, name)

    def find_public(self, name: str) -> Collection | None:
        """The public collection of that name, whoever made it; the oldest of several."""
        return self._where("is_public AND name = ? ORDER BY created", name)

    def by_id(self, id_: str) -> Collection:
        """The collection of that id; one that is not there any more says so when it is used."""
        return self._collection(id_)

    def _where(self, condition: str, *values: str) -> Collection | None:
        with self._database.reading() as connection:
            row = connection.execute(f"SELECT id FROM collections WHERE {condition}", values).fetchone()
        return None if row is None else self._collection(row[0])

    def usage(self, owner: str = "") -> StorageUsage:
        """What all that an owner has takes."""
        with self._database.reading() as connection:
            (num,) = connection.execute("SELECT count(*) FROM collections WHERE owner = ?", (owner,)).fetchone()
            rest = connection.execute(
                "SELECT count(*), coalesce(sum(num_bytes), 0) FROM documents WHERE collection_id IN "
                "(SELECT id FROM collections WHERE owner = ?)",
                (owner,),
            ).fetchone()
        return StorageUsage(num, *rest)

    def get(self, name: str, owner: str = "") -> Collection:
        """As `find`; ValueError where there is none."""
        if (found := self.find(name, owner)) is None:
            names = [each.name for each in self.infos(owner)]
            there = f"there are {', '.join(names[:10])}" if names else "there are none"
            raise ValueError(f"there is no collection {name!r:.80} in {self.directory}; {there}")
        return found

    def infos(self, *owners: str, and_public: bool = False) -> list[CollectionInfo]:
        """All collections, or those of these owners (and public ones), by name."""
        marks = ", ".join("?" * len(owners))
        sql = (
            f"SELECT id FROM collections WHERE owner IN ({marks}) OR (is_public AND ?)"
            if owners
            else ("SELECT id FROM collections")
        )
        with self._database.reading() as connection:
            rows = connection.execute(sql + " ORDER BY name, owner", (*owners, and_public) if owners else ())
            return [_info(connection, id_) for (id_,) in rows.fetchall()]

    def delete(self, name: str, owner: str = "") -> None:
        """Delete a collection with all that is in it.

        Raises:
            ValueError: there is none.
        """
        self.delete_by_id(self.get(name, owner).id)

    def delete_by_id(self, id_: str) -> None:
        """As `delete`; nothing happens where it is not there any more."""
        if self._on_deleted is not None:  # whoever is told of texts gets some at a time
            collection = self._collection(id_)
            with contextlib.suppress(CollectionGone):
                while some := collection.documents(limit=_BATCH):
                    collection.change(removed=[document.id for document in some])
        with self._database.writing() as connection:
            connection.execute("DELETE FROM collections WHERE id = ?", (id_,))
        self.forget(id_)
        for path in self.directory.glob(f"{id_}.*"):
            path.unlink(missing_ok=True)
        self._database.shrink()

    def forget(self, id_: str) -> None:
        """Give the memory of a collection's index back."""
        with self._opening:
            self._open.pop(id_, None)

    def trim(self, max_vectors: int) -> None:
        """Give the memory of the indexes that were searched longest ago back, until the others have so many vectors
        at most. The last one stays."""
        with self._opening:
            num_vectors = sum(each.num_vectors for each in self._open.values())
            for id_, collection in list(self._open.items())[:-1]:
                if num_vectors <= max_vectors:
                    break
                num_vectors -= collection.num_vectors
                del self._open[id_]

    def _collection(self, id_: str) -> Collection:
        with self._opening:
            found = self._open.pop(id_, None) or Collection(self._database, self.directory, id_, self._on_deleted)
            self._open[id_] = found  # the last one
            return found

    def save_indexes(self) -> None:
        """Bring the files of the indexes that were searched up to date."""
        for collection in list(self._open.values()):
            with contextlib.suppress(CollectionGone):
                collection.save_searched()

    def close(self) -> None:
        self._database.close()


class Collection:
    """One collection: its documents, and the search among them. `Collections` makes it."""

    def __init__(self, database: Database, directory: Path, id_: str, on_deleted: OnDeleted | None = None) -> None:
        self.id = id_
        self._database = database
        self._directory = directory
        self._on_deleted = on_deleted
        self._index: VectorIndex | None = None

    @property
    def num_vectors(self) -> int:
        """In memory, for searches."""
        return len(self._index) if self._index is not None else 0

    @property
    def info(self) -> CollectionInfo:
        """Raises CollectionGone where it was deleted."""
        with self._database.reading() as connection:
            return _info(connection, self.id)

    def check_embedder(self, embedder: EmbedderFacts) -> None:
        """Raise ValueError where its vectors were made by another embedder."""
        info = self.info
        if info.fingerprint != embedder.fingerprint:
            raise ValueError(
                f"collection {info.name!r} was embedded by {info.embedder}, not by {embedder.name} as it is here; use "
                "that one, or delete the collection and ingest again"
            )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """For whoever adds what it has compared with what is there: one at a time.

        Raises:
            CollectionBusy: another process, or another thread, is at it.
        """
        with (self._directory / f"{self.id}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CollectionBusy(
                    f"another process adds to collection {self.info.name!r} now; try again when it is done"
                ) from None
            yield

    def documents(self, *, limit: int = -1, after: int = 0) -> list[DocumentInfo]:
        """Documents, in the order in which they were first added.

        Args:
            limit: so many at most; -1 is all.
            after: the id of a document: those that come after it.
        """
        return self._documents("collection_id = ? AND id > ? ORDER BY id LIMIT ?", self.id, after, limit)

    def documents_of(self, origin: str) -> list[DocumentInfo]:
        """The documents that were read from one origin."""
        return self._documents("collection_id = ? AND origin = ? ORDER BY id", self.id, origin)

    def documents_named(self, name: str) -> list[DocumentInfo]:
        """The documents of that name: one file may hold several, which have its name all of them."""
        return self._documents("collection_id = ? AND name = ? ORDER BY id", self.id, name)

    def document(self, document_id: int) -> DocumentInfo | None:
        """The document of that id, if there is one."""
        return next(iter(self._documents("collection_id = ? AND id = ?", self.id, document_id)), None)

    def _documents(self, condition: str, *values: Plain) -> list[DocumentInfo]:
        with self._database.reading() as connection:
            rows = connection.execute(f"{_DOCUMENT} WHERE {condition}", values).fetchall()
        return [
            DocumentInfo(id_, origin, name, json.loads(metadata), *rest) for id_, origin, name, metadata, *rest in rows
        ]

    def text(self, document_id: int) -> str:
        """The whole text of a document; ValueError where there is none."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT text FROM documents WHERE collection_id = ? AND id = ?", (self.id, document_id)
            ).fetchone()
        if row is None:
            raise ValueError(f"there is no document {document_id} in this collection")
        return row[0]

    def passages_of(self, document_id: int) -> list[str]:
        """The texts of a document's chunks; none where there is no such document."""
        with self._database.reading() as connection:
            return self._chunk_texts(connection, document_id)

    def vectors_of(self, document_id: int) -> dict[str, np.ndarray]:
        """The vectors of a document's chunks by their texts."""
        try:
            text = self.text(document_id)
        except ValueError:  # deleted meanwhile
            return {}
        with self._database.reading() as connection:
            rows = connection.execute("SELECT start, end, vector FROM chunks WHERE document_id = ?", (document_id,))
            return {text[start:end]: np.frombuffer(vector, np.float32) for start, end, vector in rows}

    def change(
        self,
        added: Sequence[NewDocument] = (),
        removed: Sequence[int] = (),
        complete: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add and replace documents and remove others by their ids: all at once or, where it fails, nothing.

        Args:
            complete: origins all of whose documents are there with this, and their hashes. Others, of which some are
                added or removed, are not complete from now on.

        Raises:
            ValueError: the collection was deleted (CollectionGone), or a document's metadata are not plain values.
        """
        for document in added:
            check_metadata(document.metadata)
        gone: Counter[str] = Counter()
        with self._database.writing() as connection:
            info = self._grow_version(connection)
            if self._on_deleted is not None:
                for id_ in (*removed, *(document.replaces for document in added if document.replaces is not None)):
                    gone.update(self._chunk_texts(connection, id_))
            for id_ in removed:
                connection.execute(
                    "UPDATE documents SET origin_hash = x'' WHERE collection_id = ?1 AND origin = "
                    "(SELECT origin FROM documents WHERE collection_id = ?1 AND id = ?2)",
                    (self.id, id_),
                )
                connection.execute("DELETE FROM documents WHERE collection_id = ? AND id = ?", (self.id, id_))
            for document in added:
                self._put(connection, document)
            for origin, origin_hash in (complete or {}).items():
                connection.execute(_MARK, (origin_hash, self.id, origin))
        for document in added:
            for chunk in document.chunks:
                gone.pop(document.text[chunk.start : chunk.end], None)
        if gone and self._on_deleted is not None:
            self._on_deleted(info, list(gone))

    def mark(self, origin: str, origin_hash: bytes) -> None:
        """Note that what is here of a file is all of it; or, with b"", that it may not be."""
        with self._database.writing() as connection:
            connection.execute(_MARK, (origin_hash, self.id, origin))

    def _grow_version(self, connection: sqlite3.Connection) -> CollectionInfo:
        done = connection.execute("UPDATE collections SET version = version + 1 WHERE id = ?", (self.id,))
        if not done.rowcount:
            raise CollectionGone("the collection was deleted meanwhile")
        return _info(connection, self.id)

    def _chunk_texts(self, connection: sqlite3.Connection, document_id: int) -> list[str]:
        row = connection.execute(
            "SELECT text FROM documents WHERE collection_id = ? AND id = ?", (self.id, document_id)
        ).fetchone()
        spans = connection.execute("SELECT start, end FROM chunks WHERE document_id = ?", (document_id,))
        return [row[0][start:end] for start, end in spans] if row is not None else []

    def _put(self, connection: sqlite3.Connection, new: NewDocument) -> None:
        id_ = new.replaces
        if id_ is not None:
            connection.execute("DELETE FROM chunks WHERE collection_id = ? AND document_id = ?", (self.id, id_))
            connection.execute("DELETE FROM documents WHERE collection_id = ? AND id = ?", (self.id, id_))
        metadata = json.dumps(dict(new.metadata), ensure_ascii=False)
        num_bytes = size_of(new.name, new.metadata, new.text, new.vectors.size)
        row = (id_, self.id, new.origin, new.name, metadata, len(new.text), num_bytes, new.content_hash, b"",
               time.time(), new.text)  # fmt: skip
        id_ = connection.execute(f"INSERT INTO documents VALUES ({', '.join('?' * len(row))})", row).lastrowid
        connection.executemany(
            "INSERT INTO chunks (collection_id, document_id, start, end, num_tokens, vector) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self.id, id_, chunk.start, chunk.end, chunk.num_tokens, vector.astype(np.float32).tobytes())
                for chunk, vector in zip(new.chunks, new.vectors, strict=True)
            ],
        )

    def search(self, vector: np.ndarray, top_k: int = 5, where: Filter | None = None) -> list[Passage]:
        """The chunks nearest to a query, best first.

        Args:
            vector: float32 [dimension], of length 1, by the collection's embedder.
            where: of documents with these metadata alone.

        Raises:
            ValueError: the collection was deleted, or the filter is none.
        """
        with self._database.reading() as connection:  # index, filter and texts are of one moment
            index = self._current_index(connection)
            among = None if not where else self._chunks_where(connection, where)
            found = index.search(vector, top_k + _SPARE, among)
            ids, vectors = _vectors(connection, [id_ for id_, _ in found], len(vector))
            best = sorted(zip((vectors @ vector).tolist(), ids, strict=True), key=lambda pair: (-pair[0], pair[1]))
            return [self._passage(connection, id_, score) for score, id_ in best[:top_k]]

    def save_index(self) -> None:
        """Bring the index's file up to date. Without it, the next process that searches does."""
        with self._database.reading() as connection:
            index = self._current_index(connection)
            with contextlib.suppress(OSError):  # a full disk: it is made again when needed
                index.save()

    def save_searched(self) -> None:
        """As `save_index`, where there was a search since this was opened."""
        if self._index is not None:
            self.save_index()

    def _current_index(self, connection: sqlite3.Connection) -> VectorIndex:
        info = connection.execute("SELECT version, dimension FROM collections WHERE id = ?", (self.id,)).fetchone()
        if info is None:
            self._index = None
            raise CollectionGone("the collection was deleted")
        version, dimension = info
        if self._index is None:
            self._index = VectorIndex(self._directory / f"{self.id}.faiss", dimension)
        if self._index.version != version:
            was_missing = self._index.version == -1
            ids = connection.execute("SELECT id FROM chunks WHERE collection_id = ?", (self.id,))
            every = np.fromiter((row[0] for row in ids), np.int64)
            self._index.update(version, every, lambda wanted: _vectors(connection, wanted, dimension))
            if was_missing:
                with contextlib.suppress(OSError):
                    self._index.save()
        return self._index

    def _chunks_where(self, connection: sqlite3.Connection, where: Filter) -> np.ndarray:
        sql = ""
        values: list[Plain] = [self.id]
        for key, wanted in where.items():
            choices = [wanted] if isinstance(wanted, str | int | float) else list(wanted)
            for choice in choices:
                check_metadata({key: choice})
            marks = ", ".join("?" * len(choices))
            sql += f" AND EXISTS (SELECT 1 FROM json_each(d.metadata) WHERE key = ? AND value IN ({marks}))"
            values += [key, *choices]
        rows = connection.execute(
            "SELECT c.id FROM documents d JOIN chunks c ON c.document_id = d.id WHERE d.collection_id = ?" + sql, values
        )
        return np.fromiter((row[0] for row in rows), np.int64)

    def _passage(self, connection: sqlite3.Connection, chunk_id: int, score: float) -> Passage:
        row: Any = connection.execute(
            "SELECT substr(d.text, c.start + 1, c.end - c.start), c.start, c.end, c.num_tokens, c.id, d.id, d.name, "
            "d.metadata FROM chunks c JOIN documents d ON d.id = c.document_id WHERE c.id = ? AND c.collection_id = ?",
            (chunk_id, self.id),
        ).fetchone()
        text, start, end, num_tokens, id_, document_id, name, metadata = row
        return Passage(score, text, start, end, num_tokens, id_, document_id, name, json.loads(metadata))


def _info(connection: sqlite3.Connection, id_: str) -> CollectionInfo:
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
    found: list[int] = []
    vectors = np.empty((len(ids), dimension), np.float32)
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        marks = ", ".join("?" * len(some))
        for id_, vector in connection.execute(f"SELECT id, vector FROM chunks WHERE id IN ({marks})", some):
            vectors[len(found)] = np.frombuffer(vector, np.float32)
            found.append(id_)
    return found, vectors[: len(found)]
