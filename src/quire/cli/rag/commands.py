"""`quire rag`: ingest documents into collections and search them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import Json
from quire.cli.rag import ask
from quire.cli.rag.collections import (
    EmbedderName,
    Name,
    RagDir,
    Where,
    find_passages,
    open_collections,
    open_embedder,
    to_metadata,
)
from quire.cli.tables import print_table, show_time, write_figures
from quire.config import EngineConfig

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.collections import Collections
    from quire.rag.embedder_process import EmbedderProcess
    from quire.rag.ingest import IngestReport
    from quire.rag.records import DocumentInfo, Plain

app = typer.Typer(
    help="Collections of documents: ingest files, search passages, answer questions.",
    epilog="Example: quire rag ingest docs --collection manual, and then quire rag query 'How do I start it?' "
    "--collection manual",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command(epilog=ask.ASK_EXAMPLE)(ask.ask)
app.command(epilog=ask.WARM_EXAMPLE)(ask.warm)


@app.command(epilog="Example: quire rag ingest docs notes.pdf --collection manual")
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders: text, Markdown, HTML, PDF, SQuAD JSON.")],
    collection: Name,
    model: Annotated[list[str] | None, typer.Option(help="A model that the chunks must fit; may be repeated.")] = None,
    embedder: EmbedderName = None,
    chunk_tokens: Annotated[int | None, typer.Option(help="Chunk size of a new collection; 256 by default.")] = None,
    overlap_tokens: Annotated[int | None, typer.Option(help="Overlap of neighbouring chunks; 32 by default.")] = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="New collection: readable by all keys of a server, not only by admins."),
    ] = False,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Metadata of all these documents; may be repeated.")
    ] = None,
    warm: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Also compute the passages' KV for this model; may be repeated."),
    ] = None,
    kv_dir: Annotated[
        str | None,
        typer.Option(envvar="QUIRE_KV_DIR", help="With --warm: the KV directory; by default beside the collections."),
    ] = None,
    num_threads: Annotated[int | None, typer.Option(help="Threads of the embedder; by default one per core.")] = None,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Update a collection, new or existing, from files; only changed passages are embedded.

    Exits with status 1 if a file cannot be read; the other files are ingested.
    """
    report = _ingest(
        paths, collection, rag_dir, embedder, num_threads, to_metadata(metadata), json,
        readers=model, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, is_public=public,
    )  # fmt: skip
    for each in warm or []:
        ask.warm_collection(EngineConfig.from_env(model=each, kv_dir=kv_dir), collection, rag_dir)
    for name, reason in report.failed:
        typer.secho(f"not read: {name}: {reason}", fg=typer.colors.RED, err=True)
    if report.failed:
        raise typer.Exit(1)


def _ingest(
    paths: list[Path],
    name: str,
    rag_dir: Path | None,
    embedder: str | None,
    num_threads: int | None,
    metadata: dict[str, Plain],
    json: Path | None,
    **shape: Any,
) -> IngestReport:
    """Ingest files and print a summary.

    Args:
        shape: `readers`, `chunk_tokens`, `overlap_tokens` and `is_public` of a new collection.
    """
    with open_collections(rag_dir) as collections:
        from rich.progress import Progress

        from quire.rag.ingest import IngestReport, find_files, ingest
        from quire.rag.parser_process import ParserProcess
        from quire.rag.reader_models import counters

        find_files(paths)  # a mistyped path must not leave an empty collection
        found = collections.find(name)
        report, parser = IngestReport(), ParserProcess()
        with open_embedder(embedder, found, num_threads) as vectors, Progress(transient=True) as progress:
            found = found or _create(collections, name, vectors, **shape)
            _check_unchanged(found, shape["readers"], shape["chunk_tokens"], shape["overlap_tokens"])
            task = progress.add_task("reading", total=None)

            def advance(done: int, total: int, so_far: IngestReport) -> None:
                progress.update(task, completed=done, total=total, description=f"{so_far.num_chunks:,} chunks")

            try:
                ingest(
                    found, paths, embedder=vectors, parser=parser, metadata=metadata, report=report,
                    counters=counters(vectors.source, found.info.readers), on_progress=advance,
                )  # fmt: skip
            except KeyboardInterrupt:
                progress.stop()
                typer.echo(f"interrupted: {_words(report)}; run the same command to continue", err=True)
                raise typer.Exit(130) from None
            finally:
                parser.close()
        info = found.info
        write_figures(json, {**vars(report), "collection": info.name, "collection_id": info.id,
                             "num_documents": info.num_documents, "num_chunks_in_all": info.num_chunks})  # fmt: skip
        typer.echo(f"{_words(report)}; {info.num_documents:,} documents in {info.num_chunks:,} chunks in {info.name!r}")
        return report


@app.command(epilog="Example: quire rag query 'How do I start it?' --collection manual --top-k 3")
def query(
    question: Annotated[str, typer.Argument(help="Text to search for.")],
    collection: Name,
    top_k: Annotated[int, typer.Option(min=1, help="Passages to show.")] = 5,
    where: Where = None,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Print the passages nearest to a question, with score (cosine) and position."""
    with open_collections(rag_dir) as collections:
        found = collections.get(collection)
        passages = find_passages(found, question, top_k, where)
    for passage in passages:
        title = f"  {passage.metadata['title']}" if "title" in passage.metadata else ""
        typer.secho(f"{passage.score:.3f}  {passage.document} [{passage.start}:{passage.end}]{title}", bold=True)
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
            found.save_index()
        typer.echo(f"{len(ids):,} documents deleted")


def _create(
    collections: Collections,
    name: str,
    embedder: EmbedderProcess,
    *,
    readers: list[str] | None,
    chunk_tokens: int | None,
    overlap_tokens: int | None,
    is_public: bool,
) -> Collection:
    from quire.rag.collections import DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS
    from quire.rag.reader_models import chunk_limit

    wanted = chunk_tokens or DEFAULT_CHUNK_TOKENS
    limit = min(embedder.facts.max_tokens, chunk_limit(readers or []) or wanted)
    if wanted > limit:
        typer.echo(f"chunks of {limit} tokens, not {wanted}: the embedder or a model takes no more", err=True)
    size = min(wanted, limit)
    overlap = min(DEFAULT_OVERLAP_TOKENS, size // 2) if overlap_tokens is None else overlap_tokens
    return collections.create(
        name, embedder.facts, chunk_tokens=size, overlap_tokens=overlap, readers=readers or [], is_public=is_public
    )


def _check_unchanged(
    collection: Collection, models: list[str] | None, chunk_tokens: int | None, overlap_tokens: int | None
) -> None:
    """Refuse chunk options that differ from those of an existing collection."""
    info = collection.info
    is_new = info.version == 0
    wanted = ((chunk_tokens, info.chunk_tokens), (overlap_tokens, info.overlap_tokens))
    others = [model for model in models or [] if model not in info.readers]
    if not is_new and (others or any(given not in (None, kept) for given, kept in wanted)):
        readers = f" for {', '.join(info.readers)}" if info.readers else ""
        raise ValueError(
            f"collection {info.name!r} was cut into chunks of {info.chunk_tokens} tokens that overlap by "
            f"{info.overlap_tokens}{readers}; delete it to use other sizes (quire rag rm -c {info.name})"
        )


def _words(report: IngestReport) -> str:
    counts = {name: getattr(report, name) for name in ("added", "changed", "unchanged", "removed")}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _names(document: DocumentInfo) -> tuple[str, str]:
    """Return a document's name, which documents of one file share, and its id."""
    return document.name, f"#{document.id}"
