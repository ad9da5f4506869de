"""The progress bar on the server's terminal while its models load: one row a model, below log lines and the banner."""

from __future__ import annotations

import sys
import threading
from math import ceil
from typing import TYPE_CHECKING

from quire.outputs import LoadProgress

if TYPE_CHECKING:
    from rich.progress import TaskID

_ENDED = {"unloaded", "failed"}  # phases without progress
_PHASES = {"download": "downloading", "imports": "starting", "config": "reading its config", "first step": "first step"}


class LoadBar:
    """Shows progress from any thread. A model's row is removed once the model is complete."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        class SteadyConsole(Console):
            def show_cursor(self, show: bool = True) -> bool:
                return False  # a server may end at any time, and must not leave its terminal without a cursor

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[status]}"),
        )
        self._progress = Progress(
            *columns,
            console=SteadyConsole(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # a pipe or file keeps its lines
        )
        self._lock = threading.Lock()
        self._rows: dict[str, TaskID] = {}
        self._is_stopped = False

    @classmethod
    def on_terminal(cls) -> LoadBar | None:
        """Return a bar on standard error; None if that is no terminal."""
        if not sys.stderr.isatty():
            return None
        bar = cls()
        return None if bar._progress.console.is_dumb_terminal else bar

    def show(self, name: str, load: LoadProgress) -> None:
        """Show how far a model has loaded."""
        is_complete = load.stage > 0 and load.bytes_loaded >= load.bytes_total
        with self._lock:
            if self._is_stopped:
                return
            if is_complete or load.phase in _ENDED:
                if (row := self._rows.pop(name, None)) is not None:
                    self._progress.remove_task(row)
                if not self._rows:
                    self._progress.stop()
                return
            if name not in self._rows:
                self._rows[name] = self._progress.add_task(name, total=None, status="")
            self._progress.start()
            total, status = load.bytes_total or None, _status(load)
            self._progress.update(
                self._rows[name], total=total, completed=load.bytes_loaded, status=status, refresh=True
            )

    def stop(self) -> None:
        """Remove the bar for good."""
        with self._lock:
            self._is_stopped = True
            self._progress.stop()


def _status(load: LoadProgress) -> str:
    if load.stage:
        parts = [f"stage {load.stage} of {load.num_stages} serves" if load.num_stages > 1 else "serves"]
    else:
        parts = [_PHASES.get(load.phase, "loading")]
    if load.error is not None:
        parts.append(load.error)
    elif load.seconds_left is not None:
        parts.append(f"{ceil(load.seconds_left)} s left")
    return " · ".join(parts)
