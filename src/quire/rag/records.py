"""Records of collections, documents and passages, and the checks of names and metadata."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quire.rag.chunks import Chunk

Plain = str | int | float | bool
Metadata = Mapping[str, Plain]
Filter = Mapping[str, Plain | Sequence[Plain]]
"""Metadata field -> the required value, or a list of accepted values. All fields must match."""

_MAX_NAME = 200
_LARGEST = 2**63 - 1  #: largest number that SQLite compares exactly


@dataclass(frozen=True)
class CollectionInfo:
    """A collection's current state."""

    id: str  #: random; a recreated collection gets a new one
    name: str
    owner: str  #: a key id; "" for the command line
    is_public: bool
    created: float  #: seconds since the epoch
    embedder: str
    fingerprint: str  #: the embedder's
    dimension: int
    chunk_tokens: int
    overlap_tokens: int
    readers: tuple[str, ...]  #: models whose tokenizers limit the chunks, beside the embedder
    version: int  #: incremented by every change
    num_documents: int
    num_chunks: int


#: Receives a collection and the texts of its deleted chunks.
OnDeleted = Callable[[CollectionInfo, list[str]], None]


@dataclass(frozen=True)
class StorageUsage:
    """Storage of an owner's collections."""

    num_collections: int
    num_documents: int
    num_bytes: int  #: texts, metadata and vectors


@dataclass(frozen=True)
class DocumentInfo:
    """A stored document without its text."""

    id: int
    origin: str
    name: str
    metadata: dict[str, Plain]
    num_chars: int
    num_bytes: int  #: storage, vectors included
    num_chunks: int
    added: float
    content_hash: bytes = field(repr=False)
    origin_hash: bytes = field(repr=False)  #: of the whole origin; b"" while its documents are not all stored


@dataclass(frozen=True)
class NewDocument:
    origin: str
    name: str
    metadata: Metadata
    text: str
    content_hash: bytes
    chunks: Sequence[Chunk]
    vectors: np.ndarray  #: float32 [chunks, dimension]
    replaces: int | None = None  #: id of an older document, which the new one inherits
    page_starts: Sequence[int] = ()  #: offset of each page in the text

    def page_of(self, chunk: Chunk) -> int | None:
        """Return the page on which a chunk starts, counted from 1; None without pages."""
        return bisect_right(self.page_starts, chunk.start) or None


@dataclass(frozen=True)
class Passage:
    """A chunk found by a search."""

    score: float  #: the cosine with the query; passages found by words are not in its order
    text: str
    start: int  #: offset in the document, in characters
    end: int
    num_tokens: int
    chunk_id: int
    document_id: int
    document: str  #: its name
    metadata: dict[str, Plain]
    page: int | None  #: on which it starts, counted from 1; None without pages

    @property
    def position(self) -> str:
        """The page, or the characters, for people."""
        return f"page {self.page}" if self.page is not None else f"characters {self.start} to {self.end}"


def check_name(name: str) -> None:
    """Raise ValueError for an invalid collection name. A slash would end the name in a URL."""
    if not (0 < len(name) <= _MAX_NAME and name.isprintable() and name == name.strip()) or "/" in name:
        raise ValueError(
            f"{name!r:.60} cannot name a collection; take 1 to {_MAX_NAME} printable characters without a slash or "
            "surrounding blanks"
        )
    if name in (".", ".."):
        raise ValueError(f"{name!r} cannot name a collection: in a URL it refers to another path")


def size_of(name: str, metadata: Metadata, text: str, num_values: int) -> int:
    """Estimate a document's storage in bytes; `num_values` is its chunks times the vectors' dimension."""
    return len(name.encode()) + len(json.dumps(dict(metadata)).encode()) + len(text.encode()) + 4 * num_values


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError unless every value is a string, number or boolean."""
    for key, value in metadata.items():
        is_plain = isinstance(value, str) or (isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST)
        if not isinstance(key, str) or not is_plain:
            raise ValueError(f"metadata {key!r:.60}: {value!r:.60} is not a string, number or boolean")
