"""`quire kv`: the group of commands, and what lies in the store of KV blocks, whether engines use it or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.kv import warm
from quire.cli.options import Json
from quire.cli.tables import print_table, show_time, write_figures
from quire.config import format_size
from quire.settings import parse_size

if TYPE_CHECKING:
    from quire.tiers.store.offline import NamespaceFigures

app = typer.Typer(
    help="The KV of documents that is kept on disk: list, check, prune, delete, carry away and back.",
    epilog="Example: quire kv ls --kv-dir ~/kv",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(epilog=warm.EXAMPLE)(warm.warm)

KvDir = Annotated[Path, typer.Option("--kv-dir", envvar="QUIRE_KV_DIR", help="The store's directory.")]
Namespace = Annotated[str, typer.Argument(help="The name of its directory, its model, or how its root begins.")]


@app.command(epilog="Example: quire kv ls --kv-dir ~/kv")
def ls(kv_dir: KvDir, json: Json = None) -> None:
    """The models whose KV is kept, and the documents of each."""
    from quire.tiers.store.offline import list_namespaces

    namespaces = list_namespaces(kv_dir)
    rows = [
        (each.name, document.name, document.num_tokens, f"{document.num_found} of {document.num_blocks}")
        for each in namespaces
        for document in each.documents
    ]
    print_table(
        ("namespace", "model", "blocks", "size", "last used"),
        [(each.name, each.model, each.num_blocks, format_size(each.num_bytes), _last_use(each)) for each in namespaces],
    )
    if rows:
        typer.echo()
        print_table(("namespace", "document", "tokens", "blocks found"), rows)
    write_figures(json, namespaces)


@app.command(epilog="Example: quire kv stats --kv-dir ~/kv --json kv.json")
def stats(kv_dir: KvDir, json: Json = None) -> None:
    """How much of it there is, and how much was deleted and is not yet off the disk."""
    from quire.tiers.store.offline import list_namespaces

    namespaces = list_namespaces(kv_dir)
    print_table(
        ("namespace", "blocks", "of", "segments", "size", "deleted", "first used", "last used"),
        [
            (
                each.name,
                each.num_blocks,
                format_size(each.block_bytes),
                each.num_segments,
                format_size(each.num_bytes),
                format_size(each.dead_bytes),
                show_time(each.oldest_use),
                _last_use(each),
            )
            for each in namespaces
        ],
    )
    typer.echo(f"\n{format_size(sum(each.num_bytes for each in namespaces))} in {kv_dir}")
    write_figures(json, namespaces)


@app.command(epilog="Example: quire kv verify --kv-dir ~/kv")
def verify(kv_dir: KvDir, json: Json = None) -> None:
    """Read and check every block. Ends with status 1 where one is damaged: it is never used, and takes room."""
    from rich.progress import Progress

    from quire.tiers.store.offline import verify as check

    with Progress(transient=True) as progress:
        task = progress.add_task("checking", total=None)
        found = check(kv_dir, lambda done, total: progress.update(task, completed=done, total=total))
    print_table(
        ("intact blocks", "read", "damaged", "torn ends"),
        [(found.num_blocks, format_size(found.num_bytes), len(found.damaged), len(found.torn))],
    )
    for place in found.damaged:
        typer.echo(f"damaged: {place}")
    write_figures(json, found)
    if found.damaged:
        raise typer.Exit(1)


@app.command(epilog="Example: quire kv prune --kv-dir ~/kv --max-bytes 10GiB")
def prune(
    kv_dir: KvDir,
    max_bytes: Annotated[str, typer.Option(help="What may stay, such as 10GiB; 0 removes all that nobody writes.")],
    namespace: Annotated[str | None, typer.Option(help="Of this namespace alone.")] = None,
    json: Json = None,
) -> None:
    """Remove what would cost the least to compute again and was not used for long."""
    from quire.tiers.store.offline import list_namespaces
    from quire.tiers.store.offline import prune as evict

    before = sum(each.num_bytes for each in list_namespaces(kv_dir))
    removed = evict(kv_dir, parse_size(max_bytes), namespace)
    after = sum(each.num_bytes for each in list_namespaces(kv_dir))
    print_table(("segments removed", "before", "now"), [(len(removed), format_size(before), format_size(after))])
    write_figures(json, {"num_removed": len(removed), "num_bytes_before": before, "num_bytes": after})


@app.command(epilog="Example: quire kv rm tiny manual.pdf --kv-dir ~/kv")
def rm(namespace: Namespace, document: Annotated[str, typer.Argument(help="As ls lists it.")], kv_dir: KvDir) -> None:
    """Delete a document, and what was computed after it, in every process at once."""
    from quire.tiers.store.offline import delete_label

    typer.echo(f"{delete_label(kv_dir, namespace, document)} blocks deleted")


@app.command(epilog="Example: quire kv export tiny tiny.kv --kv-dir ~/kv")
def export(namespace: Namespace, file: Annotated[Path, typer.Argument(help="To write.")], kv_dir: KvDir) -> None:
    """Write the blocks of a namespace to one file; of a model on several ranks, those of all."""
    from quire.tiers.store.offline import export as write

    for name, count in write(kv_dir, namespace, file).items():
        typer.echo(f"{count} blocks of {name} written to {file}")


@app.command("import", epilog="Example: quire kv import tiny.kv --kv-dir ~/kv")
def import_(file: Annotated[Path, typer.Argument(help="That export wrote.")], kv_dir: KvDir) -> None:
    """Store the blocks of an exported file, each of them checked."""
    from quire.tiers.store.offline import import_ as read

    for name, count in read(file, kv_dir).items():
        typer.echo(f"{count} blocks are in {name}")


def _last_use(namespace: NamespaceFigures) -> str:
    return show_time(namespace.newest_use)
