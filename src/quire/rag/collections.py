"""The collections in a directory: create, find, list and delete them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from quire.rag.collection import Collection, CollectionGone, read_info
from quire.rag.database import Database
from quire.rag.embedding import EmbedderFacts
from quire.rag.records import CollectionInfo, OnDeleted, StorageUsage, check_name

DEFAULT_CHUNK_TOKENS = 256
DEFAULT_OVERLAP_TOKENS = 32
_DELETED_AT_ONCE = 500  # documents


def default_directory() -> Path:
    """`$XDG_DATA_HOME/quire/rag`, or ~/.local/share/quire/rag if the variable is unset or relative."""
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        try:
            data = Path("~/.local/share").expanduser()
        except RuntimeError:
            raise ValueError("this user has no home directory; say with --rag-dir where collections are kept") from None
    return data / "quire" / "rag"


class Collections:
    """The collections in a directory, shared by threads (which take turns) and processes. `on_deleted` receives the
    texts of deleted chunks. Raises ValueError if the database is unusable."""

    def __init__(self, directory: Path, on_deleted: OnDeleted | None = None) -> None:
        self.directory = directory
        self._on_deleted = on_deleted
        try:
            self._database = Database(directory)
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"{directory} cannot be written ({error}); choose another place for collections") from None
        self._lock = threading.Lock()
        self._open: dict[str, Collection] = {}  #: by id, least recently used first

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
        """Create a collection. Raises ValueError for an existing or invalid name, or invalid sizes."""
        check_name(name)
        if not 8 <= chunk_tokens <= embedder.max_tokens:
            raise ValueError(f"chunk_tokens={chunk_tokens}; {embedder.name} takes 8 to {embedder.max_tokens} tokens")
        if not 0 <= overlap_tokens <= chunk_tokens // 2:
            raise ValueError(f"an overlap of {overlap_tokens} tokens in chunks of {chunk_tokens}; take at most half")
        id_ = secrets.token_hex(16)
        row = (id_, owner, name, is_public, time.time(), embedder.name, embedder.fingerprint, embedder.dimension,
               chunk_tokens, overlap_tokens, json.dumps(list(readers)), 0, -1)  # fmt: skip
        try:
            with self._database.writing() as connection:
                connection.execute(f"INSERT INTO collections VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.IntegrityError:
            raise ValueError(f"collection {name!r} exists already; delete it first, or choose another name") from None
        return self.by_id(id_)

    def find(self, name: str, owner: str = "") -> Collection | None:
        """The owner's collection of that name, or None."""
        return self._where("owner = ? AND name = ?", owner, name)

    def find_public(self, name: str) -> Collection | None:
        """The public collection of that name, of any owner; the oldest of several."""
        return self._where("is_public AND name = ? ORDER BY created", name)

    def _where(self, condition: str, *values: str) -> Collection | None:
        with self._database.reading() as connection:
            row = connection.execute(f"SELECT id FROM collections WHERE {condition}", values).fetchone()
        return None if row is None else self.by_id(row[0])

    def by_id(self, id_: str) -> Collection:
        """The collection of that id; a deleted one raises CollectionGone when it is used."""
        with self._lock:
            found = self._open.pop(id_, None) or Collection(self._database, self.directory, id_, self._on_deleted)
            self._open[id_] = found  # most recently used
            return found

    def get(self, name: str, owner: str = "") -> Collection:
        """As `find`, but raise ValueError for an unknown name."""
        if (found := self.find(name, owner)) is None:
            names = [each.name for each in self.infos(owner)]
            there = f"there are {', '.join(names[:10])}" if names else "there are none"
            raise ValueError(f"there is no collection {name!r:.80} in {self.directory}; {there}")
        return found

    def usage(self, owner: str = "") -> StorageUsage:
        """Storage that an owner's collections take."""
        with self._database.reading() as connection:
            (num,) = connection.execute("SELECT count(*) FROM collections WHERE owner = ?", (owner,)).fetchone()
            rest = connection.execute(
                "SELECT count(*), coalesce(sum(num_bytes), 0) FROM documents WHERE collection_id IN "
                "(SELECT id FROM collections WHERE owner = ?)",
                (owner,),
            ).fetchone()
        return StorageUsage(num, *rest)

    def infos(self, *owners: str, and_public: bool = False) -> list[CollectionInfo]:
        """List all collections, or only those of given owners (and public ones), by name."""
        sql, values = "SELECT id FROM collections", [*owners, and_public] if owners else []
        if owners:
            sql += f" WHERE owner IN ({', '.join('?' * len(owners))}) OR (is_public AND ?)"
        with self._database.reading() as connection:
            rows = connection.execute(sql + " ORDER BY name, owner", values)
            return [read_info(connection, id_) for (id_,) in rows.fetchall()]

    def delete(self, name: str, owner: str = "") -> None:
        """Delete a collection and its documents. Raises ValueError for an unknown name."""
        self.delete_by_id(self.get(name, owner).id)

    def delete_by_id(self, id_: str) -> None:
        """As `delete`; an unknown id is ignored."""
        collection = self.by_id(id_)
        collection.drop_words()
        if self._on_deleted is not None:  # in parts, since the listener gets all texts of a part at once
            with contextlib.suppress(CollectionGone):
                while some := collection.documents(limit=_DELETED_AT_ONCE):
                    collection.change(removed=[document.id for document in some])
        with self._database.writing() as connection:
            connection.execute("DELETE FROM collections WHERE id = ?", (id_,))
        self.release_index(id_)
        for path in self.directory.glob(f"{id_}.*"):
            path.unlink(missing_ok=True)
        self._database.shrink()

    def release_index(self, id_: str) -> None:
        """Free the memory of a collection's index."""
        with self._lock:
            self._open.pop(id_, None)

    def trim_indexes(self, max_vectors: int) -> None:
        """Free the least recently used indexes until the others hold at most `max_vectors`. The last one stays."""
        with self._lock:
            num_vectors = sum(each.num_vectors for each in self._open.values())
            for id_, collection in list(self._open.items())[:-1]:
                if num_vectors <= max_vectors:
                    break
                num_vectors -= collection.num_vectors
                del self._open[id_]

    def close(self) -> None:
        self._database.close()
