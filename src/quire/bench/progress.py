"""A line on a terminal's stderr that says how far a benchmark is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int, name: str = "") -> Iterator[Callable[[int, str], None]]:
    """Show a bar until the block's end, where stderr is a terminal.

    Yields:
        What takes how much is done, and a remark.
    """
    if not sys.stderr.isatty():
        yield lambda done, remark: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[remark]}"))
    # Drawn twice a second: what a load's client does with its processor is part of what it measures.
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, refresh_per_second=2
    ) as bar:
        task = bar.add_task(name, total=total, remark="")
        yield lambda done, remark: bar.update(task, completed=done, remark=remark)
