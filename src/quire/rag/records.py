"""What collections hold, as plain records, and which names and metadata they take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quire.rag.chunks import Chunk

Plain = str | int | float | bool
Metadata = Mapping[str, Plain]
Filter = Mapping[str, Plain | Sequence[Plain]]
"""By fields of the metadata: the value, or a list of those that will do. All fields must fit."""

_MAX_NAME = 200
_LARGEST = 2**63 - 1  #: number that SQLite compares exactly


@dataclass(frozen=True)
class CollectionInfo:
    """A collection as it is now."""

    id: str  #: random: new when a collection is made again
    name: str
    owner: str  #: whose it is; "" on the command line
    is_public: bool
    created: float  #: seconds since the epoch
    embedder: str
    fingerprint: str  #: of the embedder: vectors of others cannot be compared with its own
    dimension: int
    chunk_tokens: int
    overlap_tokens: int
    readers: tuple[str, ...]  #: models whose tokens chunks are counted in, beside the embedder's
    version: int  #: one more with every change
    num_documents: int
    num_chunks: int


#: Told of a collection and of the texts of its chunks that are no more.
OnDeleted = Callable[[CollectionInfo, list[str]], None]


@dataclass(frozen=True)
class StorageUsage:
    """What an owner's collections take."""

    num_collections: int
    num_documents: int
    num_bytes: int  #: texts, metadata and vectors


@dataclass(frozen=True)
class DocumentInfo:
    """A document as it is kept, without its text."""

    id: int
    origin: str
    name: str
    metadata: dict[str, Plain]
    num_chars: int
    num_bytes: int  #: that it takes, its vectors with it
    num_chunks: int
    added: float
    content_hash: bytes = field(repr=False)
    origin_hash: bytes = field(repr=False)  #: of the whole file that it was read from; b"" if that is not all there


@dataclass(frozen=True)
class NewDocument:
    """A document to keep, in the place of an older one or beside the others."""

    origin: str
    name: str
    metadata: Metadata
    text: str
    content_hash: bytes
    chunks: Sequence[Chunk]
    vectors: np.ndarray  #: float32 [chunks, dimension]
    replaces: int | None = None  #: the id of the older one, which it keeps


@dataclass(frozen=True)
class Passage:
    """A chunk that was found."""

    score: float  #: the cosine with the query
    text: str
    start: int  #: in characters of its document
    end: int
    num_tokens: int
    chunk_id: int
    document_id: int
    document: str  #: its name
    metadata: dict[str, Plain]


def check_name(name: str) -> None:
    """Raise ValueError for what cannot name a collection. (A slash would end the name in a URL.)"""
    if not (0 < len(name) <= _MAX_NAME and name.isprintable() and name == name.strip()) or "/" in name:
        raise ValueError(
            f"{name!r:.60} cannot name a collection; take 1 to {_MAX_NAME} printable characters, no slash, and no "
            "blanks around"
        )
    if name in (".", ".."):
        raise ValueError(f"{name!r} cannot name a collection: in a URL it means another place")


def size_of(name: str, metadata: Metadata, text: str, num_values: int) -> int:
    """Bytes that a document takes, roughly.

    Args:
        num_values: of its vectors: chunks times dimension.
    """
    return len(name.encode()) + len(json.dumps(dict(metadata)).encode()) + len(text.encode()) + 4 * num_values


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError where a value is no string, number or boolean."""
    for key, value in metadata.items():
        is_plain = isinstance(value, str) or (isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST)
        if not isinstance(key, str) or not is_plain:
            raise ValueError(f"metadata {key!r:.60}: {value!r:.60} is no string, number or boolean")
