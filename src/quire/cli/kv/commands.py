"""`quire kv`: the group of commands."""

from __future__ import annotations

import typer

from quire.cli.kv import warm

app = typer.Typer(
    help="The KV of documents on disk.",
    epilog="Example: quire kv warm --model quire-mini --kv-dir /var/lib/quire/kv handbook.txt",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(epilog=warm.EXAMPLE)(warm.warm)
