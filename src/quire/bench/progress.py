"""A progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int | None, name: str = "") -> Iterator[Callable[[int, str], None]]:
    """Show a bar if stderr is a terminal. Yields a function that sets the completed amount and a remark."""
    if not sys.stderr.isatty():
        yield lambda done, remark: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[remark]}"))
    # Twice a second: drawing takes processor time of the load client, which is part of the measurement.
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, refresh_per_second=2
    ) as bar:
        task = bar.add_task(name, total=total, remark="")
        yield lambda done, remark: bar.update(task, completed=done, remark=remark)
