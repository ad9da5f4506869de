"""Collections and embedders as the commands of `quire rag` open them, and the options that several of them have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.collections import Collections
    from quire.rag.embedder_process import EmbedderProcess
    from quire.rag.records import Passage, Plain

RagDir = Annotated[
    Path | None,
    typer.Option(
        "--rag-dir", envvar="QUIRE_RAG_DIR", help="Where collections are kept; by default in ~/.local/share/quire/rag."
    ),
]
Name = Annotated[str, typer.Option("--collection", "-c", help="The collection's name.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=VALUE", help="Of documents with this metadata; may be repeated."),
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        help="What makes vectors: a directory, a hub id, all-MiniLM-L6-v2 (the default), or hashing, for tests."
    ),
]


@contextmanager
def open_collections(rag_dir: Path | None) -> Iterator[Collections]:
    """The collections in a directory; what goes wrong with them becomes a message."""
    try:
        from quire.rag.collections import Collections, default_directory
    except ModuleNotFoundError as error:
        raise ValueError(f"collections need {error.name}, which is not installed: pip install 'quire[rag]'") from None
    from quire.system.worker_process import WorkerError

    collections = Collections((rag_dir or default_directory()).expanduser())
    try:
        yield collections
    except WorkerError as error:
        raise ValueError(f"{error}; what was done is kept, try again") from None
    except sqlite3.Error as error:  # a full disk, a database that others keep busy
        raise ValueError(f"{collections.directory}: {error}; what was done is kept, try again") from None
    finally:
        collections.close()


@contextmanager
def open_embedder(
    name: str | None, collection: Collection | None, num_threads: int | None
) -> Iterator[EmbedderProcess]:
    """The one that is asked for, else the collection's."""
    from quire.rag.embedder import DEFAULT_EMBEDDER, find_embedder
    from quire.rag.embedder_process import EmbedderProcess

    source = find_embedder(name or (collection.info.embedder if collection is not None else DEFAULT_EMBEDDER))
    embedder = EmbedderProcess(source, num_threads=num_threads)
    try:
        yield embedder
    finally:
        embedder.close()


def find_passages(collection: Collection, question: str, top_k: int, where: list[str] | None) -> list[Passage]:
    """The passages of a collection that are nearest to a question, by the collection's own embedder."""
    with open_embedder(None, collection, None) as embedder:
        collection.check_embedder(embedder.facts)
        (vector,) = embedder.embed([question]).vectors
    return collection.search(vector, top_k, to_filter(where))


def to_metadata(given: list[str] | None) -> dict[str, Plain]:
    """From KEY=VALUE."""
    pairs: dict[str, Plain] = {}
    for each in given or []:
        key, separator, value = each.partition("=")
        if not key or not separator:
            raise ValueError(f"{each!r} is not KEY=VALUE")
        pairs[key] = _plain(value)
    return pairs


def to_filter(given: list[str] | None) -> dict[str, list[Plain]]:
    """A key that is given twice means either value."""
    wanted: dict[str, list[Plain]] = {}
    for each in given or []:
        for key, value in to_metadata([each]).items():
            wanted.setdefault(key, []).append(value)
    return wanted


def _plain(value: str) -> Plain:
    """Numbers as numbers, true and false as booleans, in metadata and filters alike."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
