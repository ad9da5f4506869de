"""`quire pull`: download a model."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.config import format_size

EXAMPLE = "Example: quire pull Qwen/Qwen2.5-0.5B-Instruct"


def pull(model: Annotated[str, typer.Argument(help="A hub id.")]) -> None:
    """Download a model from the hub, as serve does at its first start."""
    from quire.loading.source import find_model, resolve_model

    found = find_model(model)
    source = found or resolve_model(model)
    if source.path is None:
        raise ValueError(f"{model} is a preset with random weights; there is nothing to download")
    size = sum(file.stat().st_size for file in source.path.rglob("*") if file.is_file())
    where = "is on this machine" if found is not None else "is complete"
    typer.echo(f"{model} {where}: {format_size(size)} in {source.path}")
