"""The SQLite database of a collections directory: schema, connection and transactions."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from quire.rag.index import has_fts5

logger = logging.getLogger("quire.rag")
FILE = "collections.sqlite3"
_VERSION = 4
_APPLICATION_ID = 0x51525247
_BUSY_TIMEOUT_S = 30.0
# AUTOINCREMENT never reuses an id, so an outdated index cannot confuse two chunks.
_SCHEMA = """
CREATE TABLE collections (
  id TEXT PRIMARY KEY,               -- random; a recreated collection gets a new one
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  is_public INTEGER NOT NULL,
  created REAL NOT NULL,             -- seconds since the epoch
  embedder TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  dimension INTEGER NOT NULL,
  chunk_tokens INTEGER NOT NULL,
  overlap_tokens INTEGER NOT NULL,
  readers TEXT NOT NULL,             -- a JSON list of models
  version INTEGER NOT NULL,          -- incremented by every change of its chunks
  words_version INTEGER NOT NULL DEFAULT -1, -- version that the table words_ID indexes
  UNIQUE (owner, name)
) STRICT;
CREATE TABLE documents (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  collection_id TEXT NOT NULL REFERENCES collections (id) ON DELETE CASCADE,
  origin TEXT NOT NULL,              -- a file's absolute path, or the name given by a client
  name TEXT NOT NULL,                -- shown to people
  metadata TEXT NOT NULL,            -- a JSON object of plain values
  num_chars INTEGER NOT NULL,
  num_bytes INTEGER NOT NULL,        -- storage, vectors included
  content_hash BLOB NOT NULL,
  origin_hash BLOB NOT NULL,
  added REAL NOT NULL,
  text TEXT NOT NULL                 -- last, so listing documents does not read it
) STRICT;
CREATE INDEX documents_of ON documents (collection_id, origin, num_bytes);
CREATE INDEX documents_by_name ON documents (collection_id, name);
CREATE TABLE chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  collection_id TEXT NOT NULL REFERENCES collections (id) ON DELETE CASCADE,
  document_id INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
  start INTEGER NOT NULL,            -- in characters of the document's text
  end INTEGER NOT NULL,
  num_tokens INTEGER NOT NULL,
  page INTEGER,                      -- on which it starts, counted from 1
  vector BLOB NOT NULL               -- float32, of length 1
) STRICT;
CREATE INDEX chunks_of_collection ON chunks (collection_id);
CREATE INDEX chunks_of_document ON chunks (document_id);
"""
#: Version -> statement that makes the next version of it.
_UPGRADES = {3: "ALTER TABLE collections ADD COLUMN words_version INTEGER NOT NULL DEFAULT -1"}


class Database:
    """A connection for writing, which threads use in turn, and one for each concurrent reader.

    Raises ValueError for a damaged or foreign file.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / FILE
        self._lock = threading.RLock()
        self._idle: list[sqlite3.Connection] = []  #: connections of readers
        self._connection = self._connect()
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(
                f"{self.path} cannot be used ({error}); if it is damaged, move it away and ingest again"
            ) from None
        except BaseException:
            self._connection.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA auto_vacuum = INCREMENTAL")  # only effective as the first statement
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA foreign_keys = ON")
        run("PRAGMA secure_delete = ON")  # overwrite deleted text in the file
        if self._version() == 0:
            self._create_tables()
        if self._version() in _UPGRADES:
            self._upgrade()
        if (version := self._version()) != _VERSION:
            raise ValueError(
                f"{self.path} is of version {version}, and this Quire reads {_VERSION}; use the Quire that made it"
            )
        os.chmod(self.path, 0o600)

    def _version(self) -> int:
        ((version,),) = self._connection.execute("PRAGMA user_version")
        return int(version)

    def _create_tables(self) -> None:
        with self.writing() as connection:
            if self._version() == 0:  # else another process was faster
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _upgrade(self) -> None:
        with self.writing() as connection:
            while (version := self._version()) in _UPGRADES:
                connection.execute(_UPGRADES[version])
                connection.execute(f"PRAGMA user_version = {version + 1}")

    @cached_property
    def has_words(self) -> bool:
        """Whether this SQLite can index words; otherwise log it."""
        if not (found := has_fts5(self._connection)):
            logger.warning("SQLite %s has no FTS5: collections are searched by vectors only", sqlite3.sqlite_version)
        return found

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read within one snapshot."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            with self._transaction(connection, "BEGIN"):
                yield connection
        finally:
            self._idle.append(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write within one transaction; an exception rolls it back."""
        with self._lock, self._transaction(self._connection, "BEGIN IMMEDIATE"):
            yield self._connection

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str) -> Iterator[None]:
        connection.execute(begin)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def shrink(self) -> None:
        """Return the space of deleted rows to the file system."""
        with self._lock:
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        with self._lock:
            for connection in (self._connection, *self._idle):
                connection.close()
