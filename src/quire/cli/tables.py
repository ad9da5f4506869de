"""Print tables for people and write JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "nothing is stored") -> None:
    """Print a table with thousands separators; narrow terminals wrap lines instead of truncating names."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        typer.echo(empty)
        return
    table = Table(*head, box=None)
    for row in rows:
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))  # no markup
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=1000)).maximum
    console.width = max(console.width, needed)
    console.print(table, highlight=False, crop=False)


def write_figures(path: Path | None, figures: Any) -> None:
    """Write a dataclass, a list of them or plain values to `path`, if there is one."""
    if path is not None:
        from dataclasses import asdict, is_dataclass

        from quire.bench.files import write_json

        def plain(value: Any) -> Any:
            return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

        write_json([plain(each) for each in figures] if isinstance(figures, list) else plain(figures), path)


def show_time(seconds: float | None) -> str:
    """Format seconds since the epoch, to the minute."""
    from datetime import datetime

    return "never" if seconds is None else datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
