"""`quire kernels`: compile and list the CPU kernels."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli.command import App

app = App(help="CPU kernels: compile and list them.", epilog="Example: quire kernels info")


@app.command(epilog="Example: quire kernels build --again")
def build(again: Annotated[bool, typer.Option("--again", help="Recompile existing kernels.")] = False) -> None:
    """Compile missing or outdated kernels with $CXX or the first compiler on the PATH."""
    from quire.kernels import build as kernels

    try:
        for path in kernels.build(again=again):
            typer.echo(path)
        if kernels.FAILURE.exists():
            typer.echo(f"not built: {kernels.FAILURE.read_text().strip()}", err=True)
    except kernels.BuildError as error:
        raise ValueError(f"no kernels were built: {error}; without them, pip install 'quire-llm[torch]'") from None


@app.command(epilog="Example: quire kernels info")
def info() -> None:
    """Show the built levels, those that this processor runs, and the one in use."""
    from rich.console import Console
    from rich.table import Table

    from quire.kernels.build import FAILURE, LEVELS, library_path
    from quire.kernels.loaded import load_kernels, runnable_levels

    used = load_kernels()
    runnable = runnable_levels()
    is_known = library_path("generic").exists()  # the generic level detects the processor
    table = Table("level", "built", "runs here", "used", box=None)
    for level in LEVELS:
        is_built = library_path(level).exists()
        runs = "yes" if level in runnable else "no" if is_built and is_known else "?"
        table.add_row(level, "yes" if is_built else "no", runs, "yes" if level == used.level else "")
    console = Console()
    console.print(table)
    if FAILURE.exists():
        console.print(f"not built: {FAILURE.read_text().strip()}", soft_wrap=True)
    console.print(f"used: {used}" + ("" if used.functions is None else f", {library_path(used.level)}"), soft_wrap=True)
