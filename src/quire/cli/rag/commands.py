"""`quire rag`: ingest documents into collections and search them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.command import App
from quire.cli.options import Json, options
from quire.cli.rag import ask
from quire.cli.rag.collections import (
    Name,
    RagDir,
    Search,
    Where,
    find_passages,
    open_collections,
    open_embedder,
    to_metadata,
)
from quire.cli.tables import print_table, show_time, write_figures
from quire.config import EngineConfig
from quire.settings import Settings, setting

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.collections import Collections
    from quire.rag.embedder_process import EmbedderProcess
    from quire.rag.ingest import IngestReport
    from quire.rag.records import DocumentInfo, Plain

app = App(
    help="Collections of documents: ingest files, search passages, answer questions.",
    epilog="Example: quire rag ingest docs --collection manual, and then quire rag query 'How do I start it?' "
    "--collection manual",
)

app.command(epilog=ask.ASK_EXAMPLE)(ask.ask)
app.command(epilog=ask.WARM_EXAMPLE)(ask.warm)


@dataclass(frozen=True)
class IngestSettings(Settings):
    """The embedder, and the shape of a new collection."""

    models: tuple[str, ...] = setting((), "A model that the chunks must fit; may be repeated.", name="model")
    embedder: str | None = setting(
        None, "Embedder: a directory, a hub id, all-MiniLM-L6-v2 (the default), or hashing (tests)."
    )
    num_threads: int | None = setting(None, "Threads of the embedder; by default one per core.", at_least=1)
    chunk_tokens: int | None = setting(None, "Chunk size of a new collection; 256 by default.")
    overlap_tokens: int | None = setting(None, "Overlap of neighbouring chunks; 32 by default.")
    public: bool = setting(False, "New collection: readable by all keys of a server, not only by admins.", is_flag=True)
    metadata: tuple[str, ...] = setting((), "Metadata of all these documents; may be repeated.", metavar="KEY=VALUE")
    warm: tuple[str, ...] = setting(
        (), "Also compute the passages' KV for this model; may be repeated.", metavar="MODEL"
    )
    kv_dir: str | None = setting(
        None, "With --warm: the KV directory; by default beside the collections.", envvar="QUIRE_KV_DIR"
    )


@app.command(epilog="Example: quire rag ingest docs notes.pdf --collection manual")
@options()
def ingest(
    settings: IngestSettings,
    paths: Annotated[list[Path], typer.Argument(help="Files and folders: text, Markdown, HTML, PDF, Word, EPUB, CSV.")],
    collection: Name,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Update a collection, new or existing, from files; only changed passages are embedded.

    Exits with status 1 if a file cannot be read; the other files are ingested.
    """
    with open_collections(rag_dir) as collections:
        from quire.rag.ingest import IngestReport, find_files

        find_files(paths)  # a mistyped path must not leave an empty collection
        report, found = IngestReport(), collections.find(collection)
        with open_embedder(settings.embedder, found, settings.num_threads) as embedder:
            found = found or _create(collections, collection, embedder, settings)
            _check_unchanged(found, settings)
            _ingest(found, paths, embedder, to_metadata(settings.metadata), report)
        info = found.info
        write_figures(json, {**vars(report), "collection": info.name, "collection_id": info.id,
                             "num_documents": info.num_documents, "num_chunks_in_all": info.num_chunks})  # fmt: skip
        typer.echo(f"{_words(report)}; {info.num_documents:,} documents in {info.num_chunks:,} chunks in {info.name!r}")
    for model in settings.warm:
        ask.warm_collection(EngineConfig.from_env(model=model, kv_dir=settings.kv_dir), collection, rag_dir)
    for name in report.empty:
        typer.echo(f"without text: {name}", err=True)
    if report.skipped:
        counts = ", ".join(f"{count:,} of {suffix}" for suffix, count in sorted(report.skipped.items()))
        typer.echo(f"skipped, since these kinds are not read: {counts}", err=True)
    for name, reason in report.failed:
        typer.secho(f"not read: {name}: {reason}", fg=typer.colors.RED, err=True)
    if report.failed:
        raise typer.Exit(1)


def _ingest(
    collection: Collection,
    paths: list[Path],
    embedder: EmbedderProcess,
    metadata: dict[str, Plain],
    report: IngestReport,
) -> None:
    """Ingest files behind a progress bar. Ctrl-C keeps finished work."""
    from rich.progress import Progress

    from quire.rag.ingest import ingest
    from quire.rag.parser_process import ParserProcess
    from quire.rag.reader_models import counters

    parser = ParserProcess()
    with Progress(transient=True) as progress:
        task = progress.add_task("reading", total=None)

        def advance(done: int, total: int, so_far: IngestReport) -> None:
            progress.update(task, completed=done, total=total, description=f"{so_far.num_chunks:,} chunks")

        try:
            ingest(
                collection, paths, embedder=embedder, parser=parser, metadata=metadata, report=report,
                counters=counters(embedder.source, collection.info.readers), on_progress=advance,
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.stop()
            typer.echo(f"interrupted: {_words(report)}; run the same command to continue", err=True)
            raise typer.Exit(130) from None
        finally:
            parser.close()


@app.command(epilog="Example: quire rag query 'How do I start it?' --collection manual --top-k 3")
def query(
    question: Annotated[str, typer.Argument(help="Text to search for.")],
    collection: Name,
    top_k: Annotated[int, typer.Option(min=1, help="Passages to show.")] = 5,
    where: Where = None,
    search: Search = "hybrid",
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Print the best passages for a question, with score (cosine) and position."""
    with open_collections(rag_dir) as collections:
        found = collections.get(collection)
        passages = find_passages(found, question, top_k, where, search)
    for passage in passages:
        title = f"  {passage.metadata['title']}" if "title" in passage.metadata else ""
        typer.secho(f"{passage.score:.3f}  {passage.document}, {passage.position}{title}", bold=True)
        typer.echo("    " + passage.text.replace("\n", "\n    ") + "\n")
    if not passages:
        typer.echo("no passages found")
    write_figures(json, passages)


@app.command(epilog="Example: quire rag ls --collection manual")
def ls(
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="List the documents of this collection.")
    ] = None,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """List the collections, or the documents of one."""
    with open_collections(rag_dir) as collections:
        if collection is None:
            infos = collections.infos()
            print_table(
                ("collection", "documents", "chunks", "of tokens", "embedder", "made", "id"),
                [
                    (each.name, each.num_documents, each.num_chunks, each.chunk_tokens, each.embedder,
                     show_time(each.created), each.id[:12])
                    for each in infos
                ],
                empty="there are no collections",
            )  # fmt: skip
            write_figures(json, infos)
            return
        documents = collections.get(collection).documents()
        print_table(
            ("id", "document", "title", "characters", "chunks", "added"),
            [
                (f"#{each.id}", each.name, each.metadata.get("title", ""), each.num_chars, each.num_chunks,
                 show_time(each.added))
                for each in documents
            ],
            empty="there are no documents",
        )  # fmt: skip
        kept = ("id", "name", "origin", "metadata", "num_chars", "num_chunks", "added")
        write_figures(json, [{name: getattr(each, name) for name in kept} for each in documents])


@app.command(epilog="Example: quire rag rm --collection manual docs/old.md")
def rm(
    collection: Name,
    documents: Annotated[
        list[str] | None, typer.Argument(help="Names or #ids from ls; by default the whole collection.")
    ] = None,
    rag_dir: RagDir = None,
) -> None:
    """Delete documents, or a whole collection."""
    with open_collections(rag_dir) as collections:
        found = collections.get(collection)
        if not documents:
            count = found.info.num_documents
            collections.delete(collection)
            typer.echo(f"{collection!r} is deleted, with {count:,} documents")
            return
        there = found.documents()
        if missing := sorted(set(documents) - {name for each in there for name in _names(each)}):
            raise ValueError(f"there is no document {missing[0]!r} in {collection!r}; `quire rag ls -c {collection}`")
        ids = [each.id for each in there if set(_names(each)) & set(documents)]
        with found.changing():
            found.change(removed=ids)
        typer.echo(f"{len(ids):,} documents deleted")


def _create(collections: Collections, name: str, embedder: EmbedderProcess, settings: IngestSettings) -> Collection:
    from quire.rag.collections import DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS
    from quire.rag.reader_models import chunk_limit

    readers, overlap = list(settings.models), settings.overlap_tokens
    wanted = settings.chunk_tokens or DEFAULT_CHUNK_TOKENS
    size = min(wanted, embedder.facts.max_tokens, chunk_limit(readers) or wanted)
    if wanted > size:
        typer.echo(f"chunks of {size} tokens, not {wanted}: the embedder or a model takes no more", err=True)
    overlap = min(DEFAULT_OVERLAP_TOKENS, size // 2) if overlap is None else overlap
    return collections.create(
        name, embedder.facts, chunk_tokens=size, overlap_tokens=overlap, readers=readers, is_public=settings.public
    )


def _check_unchanged(collection: Collection, settings: IngestSettings) -> None:
    """Refuse chunk options that differ from those of an existing collection."""
    info = collection.info
    wanted = ((settings.chunk_tokens, info.chunk_tokens), (settings.overlap_tokens, info.overlap_tokens))
    is_changed = set(settings.models) - set(info.readers) or any(given not in (None, kept) for given, kept in wanted)
    if info.version > 0 and is_changed:
        readers = f" for {', '.join(info.readers)}" if info.readers else ""
        raise ValueError(
            f"collection {info.name!r} was cut into chunks of {info.chunk_tokens} tokens that overlap by "
            f"{info.overlap_tokens}{readers}; delete it to use other sizes (quire rag rm -c {info.name})"
        )


def _words(report: IngestReport) -> str:
    counts = {name: getattr(report, name) for name in ("added", "changed", "unchanged", "removed")}
    if report.empty:
        counts["without text"] = len(report.empty)
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _names(document: DocumentInfo) -> tuple[str, str]:
    """Return a document's name, which documents of one file share, and its id."""
    return document.name, f"#{document.id}"
