"""`quire models`: models on this machine, architectures and presets; and those of a running server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.client_options import DEFAULT_URL, ApiKey, failures_in_one_line
from quire.cli.command import App, Group
from quire.config import format_size

EXAMPLE = "Example: quire models"


class ModelsGroup(Group):
    """A group with a default command."""

    default = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [self.default, *args])


app = App(cls=ModelsGroup, no_args_is_help=False, epilog=EXAMPLE, help="List models, or change those of a server.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name from GET /v1/models.")]
Url = Annotated[str, typer.Option(envvar="QUIRE_URL", help="Server.")]


def _changing(what: str) -> Callable[..., None]:
    def change(name: Name, url: Url = DEFAULT_URL, api_key: ApiKey = None) -> None:
        from quire.client.server_address import ServerAddress

        with failures_in_one_line():
            server = ServerAddress.of(url, api_key)
            typer.echo(f"{name}: {server.ask('POST', f'models/{what}', timeout_s=None, json={'model': name})['state']}")

    return change


for _what, _text in {
    "load": "Load a model of a server, and wait until it is ready.",
    "unload": "Free a model's memory once its requests have ended; the next request loads it again.",
    "reload": "Read a model's files again once its requests have ended, and wait until it is ready.",
}.items():
    app.command(name=_what, help=_text, epilog=f"Example: quire models {_what} quire-chat")(_changing(_what))


@app.command(name=ModelsGroup.default, epilog=EXAMPLE)
def models(
    directories: Annotated[list[Path] | None, typer.Argument(metavar="[DIR]...", help="Look there too.")] = None,
    download_dir: Annotated[
        str | None, typer.Option(envvar="QUIRE_DOWNLOAD_DIR", help="Directory of hub models; HF_HOME/hub by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the models on this machine as JSON.")] = False,
) -> None:
    """List the models on this machine: embedded, of the hub, of ollama and of LM Studio; then all architectures."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading.on_disk import models_in, stored_models
    from quire.loading.presets import preset_names
    from quire.loading.source import EMBEDDED_MODELS, embedded_path
    from quire.models.registry import ARCHITECTURES, MULTIMODAL

    if missing := [str(each) for each in directories or () if not each.is_dir()]:
        raise ValueError(f"{missing[0]}: no such directory")
    embedded = [each for name in EMBEDDED_MODELS for each in models_in(embedded_path(name) or Path(), "embedded", name)]
    found = [*embedded, *stored_models(download_dir, directories or ())]
    if as_json:
        typer.echo(json.dumps([asdict(each) | {"path": str(each.path)} for each in found], indent=2))
        return
    table = Table("model", "size", "format", "of", box=None)
    for each in found:
        table.add_row(each.name, format_size(each.num_bytes), each.format, EMBEDDED_MODELS.get(each.name, each.place))
    console = Console()
    console.print(table, "\nArchitectures:", highlight=False)
    supported = {each.name: each.families for each in ARCHITECTURES.values()} | MULTIMODAL
    console.print(", ".join(f"{name} ({families})" for name, families in supported.items()), highlight=False)
    console.print("\nPresets (known shapes with random weights):", highlight=False)
    console.print(", ".join(preset_names()), highlight=False)
