"""`quire kv`: list, verify and prune a block store, also while engines use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.command import App
from quire.cli.kv import warm
from quire.cli.options import Json
from quire.cli.tables import print_table, show_time, write_figures
from quire.config import format_size
from quire.settings import parse_size

app = App(
    help="KV of documents on disk: warm, list, verify, prune, delete.",
    epilog="Example: quire kv ls --kv-dir ~/kv",
)
app.command(epilog=warm.EXAMPLE)(warm.warm)

KvDir = Annotated[Path, typer.Option("--kv-dir", envvar="QUIRE_KV_DIR", help="The KV directory.")]
KeyFile = Annotated[
    str | None,
    typer.Option("--kv-dir-key", metavar="FILE", envvar="QUIRE_KV_DIR_KEY", help="File with the key of encrypted KV."),
]
Namespace = Annotated[str, typer.Argument(help="Directory name, model name, or a prefix of the root key.")]


@app.command(epilog="Example: quire kv ls --kv-dir ~/kv")
def ls(kv_dir: KvDir, kv_dir_key: KeyFile = None, json: Json = None) -> None:
    """List namespaces and their documents."""
    from quire.tiers.store.layout.cipher import open_cipher
    from quire.tiers.store.offline import list_namespaces

    namespaces = list_namespaces(kv_dir, open_cipher(kv_dir_key))
    rows = [
        (each.name, document.name, document.num_tokens, f"{document.num_found} of {document.num_blocks}")
        for each in namespaces
        for document in each.documents
    ]
    print_table(
        ("namespace", "model", "blocks", "coded", "size", "last used"),
        [
            (each.name, each.model, each.num_blocks, each.num_coded, format_size(each.num_bytes),
             show_time(each.newest_use))
            for each in namespaces
        ],
    )  # fmt: skip
    if rows:
        typer.echo()
        print_table(("namespace", "document", "tokens", "blocks found"), rows)
    _print_locked([each.name for each in namespaces if each.is_locked])
    write_figures(json, namespaces)


@app.command(epilog="Example: quire kv verify --kv-dir ~/kv")
def verify(kv_dir: KvDir, kv_dir_key: KeyFile = None, json: Json = None) -> None:
    """Read and check every block. Exits with status 1 if one is damaged; engines never use it."""
    from rich.progress import Progress

    from quire.tiers.store.layout.cipher import open_cipher
    from quire.tiers.store.offline import verify as check

    with Progress(transient=True) as progress:
        task = progress.add_task("checking", total=None)
        cipher = open_cipher(kv_dir_key)
        found = check(kv_dir, lambda done, total: progress.update(task, completed=done, total=total), cipher)
    print_table(
        ("intact blocks", "coded", "read", "damaged", "torn ends"),
        [(found.num_blocks, found.num_coded, format_size(found.num_bytes), len(found.damaged), len(found.torn))],
    )
    _print_locked(found.locked)
    for place in found.damaged:
        typer.echo(f"damaged: {place}")
    write_figures(json, found)
    if found.damaged:
        raise typer.Exit(1)


@app.command(epilog="Example: quire kv prune --kv-dir ~/kv --max-bytes 10GiB")
def prune(
    kv_dir: KvDir,
    max_bytes: Annotated[str, typer.Option(help="Size to keep, such as 10GiB; 0 keeps only open segments.")],
    namespace: Annotated[str | None, typer.Option(help="Prune only this namespace.")] = None,
    json: Json = None,
) -> None:
    """Evict the blocks that are cheapest to recompute and unused for longest."""
    from quire.tiers.store.offline import list_namespaces
    from quire.tiers.store.offline import prune as evict

    before = sum(each.num_bytes for each in list_namespaces(kv_dir))
    removed = evict(kv_dir, parse_size(max_bytes), namespace)
    after = sum(each.num_bytes for each in list_namespaces(kv_dir))
    print_table(("segments removed", "before", "now"), [(len(removed), format_size(before), format_size(after))])
    write_figures(json, {"num_removed": len(removed), "num_bytes_before": before, "num_bytes": after})


@app.command(epilog="Example: quire kv rm tiny manual.pdf --kv-dir ~/kv")
def rm(
    namespace: Namespace,
    document: Annotated[str, typer.Argument(help="Document name from ls.")],
    kv_dir: KvDir,
    kv_dir_key: KeyFile = None,
) -> None:
    """Delete a document and all blocks computed after it, for every process."""
    from quire.tiers.store.layout.cipher import open_cipher
    from quire.tiers.store.offline import delete_label

    typer.echo(f"{delete_label(kv_dir, namespace, document, open_cipher(kv_dir_key))} blocks deleted")


def _print_locked(namespaces: Sequence[str]) -> None:
    for name in namespaces:
        typer.echo(f"{name} is encrypted; name the file of its key with --kv-dir-key")
