"""Shared by the `quire rag` commands: options, and opening collections and embedders."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.settings import RankBy

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.collections import Collections
    from quire.rag.embedder_process import EmbedderProcess
    from quire.rag.records import Passage, Plain

RagDir = Annotated[
    Path | None,
    typer.Option(
        "--rag-dir", envvar="QUIRE_RAG_DIR", help="Directory of the collections; by default ~/.local/share/quire/rag."
    ),
]
Name = Annotated[str, typer.Option("--collection", "-c", help="The collection's name.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="KEY=VALUE", help="Only documents with this metadata; may be repeated."),
]
Search = Annotated[RankBy, typer.Option("--search", help="Rank by vectors and words, or by vectors only.")]


@contextmanager
def open_collections(rag_dir: Path | None) -> Iterator[Collections]:
    """Open the collections of a directory, and turn their failures into messages."""
    try:
        from quire.rag.collections import Collections, default_directory
    except ModuleNotFoundError as error:
        raise ValueError(f"collections need {error.name}: pip install 'quire-llm[rag]'") from None
    from quire.system.worker_process import WorkerError

    collections = Collections((rag_dir or default_directory()).expanduser())
    try:
        yield collections
    except WorkerError as error:
        raise ValueError(f"{error}; finished work is kept, try again") from None
    except sqlite3.Error as error:  # full disk, busy database
        raise ValueError(f"{collections.directory}: {error}; finished work is kept, try again") from None
    finally:
        collections.close()


def open_embedder(name: str | None, collection: Collection | None, num_threads: int | None) -> closing[EmbedderProcess]:
    """Start the named embedder, or the collection's."""
    from quire.rag.embedder import DEFAULT_EMBEDDER, find_embedder
    from quire.rag.embedder_process import EmbedderProcess

    source = find_embedder(name or (collection.info.embedder if collection is not None else DEFAULT_EMBEDDER))
    return closing(EmbedderProcess(source, num_threads=num_threads))


def find_passages(
    collection: Collection, question: str, top_k: int, where: list[str] | None, search: RankBy
) -> list[Passage]:
    """Return the best passages for a question, by the collection's embedder and by words."""
    with open_embedder(None, collection, None) as embedder:
        collection.check_embedder(embedder.facts)
        (vector,) = embedder.embed([question]).vectors
    return collection.search(vector, top_k, to_filter(where), question, search)


def to_metadata(given: Sequence[str]) -> dict[str, Plain]:
    """Parse KEY=VALUE texts."""
    pairs: dict[str, Plain] = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not key or not separator:
            raise ValueError(f"{each!r} is not KEY=VALUE")
        pairs[key] = _plain(value)
    return pairs


def to_filter(given: list[str] | None) -> dict[str, list[Plain]]:
    """Parse KEY=VALUE texts; a repeated key accepts each of its values."""
    wanted: dict[str, list[Plain]] = {}
    for each in given or []:
        for key, value in to_metadata([each]).items():
            wanted.setdefault(key, []).append(value)
    return wanted


def _plain(value: str) -> Plain:
    """Parse a number, true or false; keep other texts."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
