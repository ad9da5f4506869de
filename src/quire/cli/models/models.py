"""`quire models`: models on this machine, architectures and presets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from quire.config import format_size

EXAMPLE = "Example: quire models"


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
