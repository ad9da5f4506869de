"""Who is told how far loading has come, and the progress bar. On stderr, so that stdout stays the program's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from quire.outputs import LoadProgress

#: Whoever makes an engine may set this meanwhile, to be told of its model's loading, from any thread, then and later.
load_listener: ContextVar[Callable[[LoadProgress], None] | None] = ContextVar("load_listener", default=None)


@contextmanager
def bytes_progress(description: str, total: int, enabled: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar: yields `advance(num_bytes)`, which any thread may call."""
    if not enabled:
        yield lambda num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)
        yield lambda num_bytes: progress.advance(task, num_bytes)
