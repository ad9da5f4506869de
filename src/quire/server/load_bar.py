"""The bar of stages on the terminal that a server was started from, while its models arrive.

A row a model at the bottom of the screen: log lines and the banner pass above it, and it is gone once all is there. It
is drawn in the server's process alone, from what its engines report, and hides no cursor: a server may end at any time.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, TextIO

from quire.outputs import LoadProgress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDTH = 40  # of the bar, in cells
_OVER = {"unloaded", "failed"}  # phases in which nothing arrives
_PHASES = {"imports": "starting", "config": "reading its config", "first step": "first step"}
_SERVED, _LOADED, _REST = "green", "cyan", "bright_black"


class LoadBar:
    """Draws from its first `take` on, and may be told of progress from any thread.

    Args:
        console: of standard error, which is a terminal.
        marks: by model, the share of its bytes at which each of its stages is there, ascending to 1.
    """

    def __init__(self, console: Console, marks: Mapping[str, Sequence[float]]) -> None:
        self._console = console
        self._marks = marks
        self._lock = threading.RLock()
        self._rows: dict[str, LoadProgress] = {}
        self._num_drawn = 0  #: rows on the screen, above the cursor
        self._passed: list[tuple[Any, _Above]] = []  #: log handlers whose lines pass above the bar
        self._outer: tuple[TextIO, TextIO] | None = None  #: what stdout and stderr were before
        self._is_stopped = False

    @classmethod
    def on_terminal(cls, marks: Mapping[str, Sequence[float]]) -> LoadBar | None:
        """A bar on standard error; None where that is no terminal."""
        if not sys.stderr.isatty():
            return None
        from rich.console import Console

        console = Console(file=sys.stderr)
        return None if console.is_dumb_terminal else cls(console, marks)

    def take(self, name: str, progress: LoadProgress) -> None:
        """A model has come this far."""
        is_whole = progress.stage > 0 and progress.bytes_loaded >= progress.bytes_total
        with self._lock:
            self._erase()
            if is_whole or progress.phase in _OVER:
                self._rows.pop(name, None)
            else:
                self._rows[name] = progress
            if self._rows and not self._is_stopped:
                self._step_between()
                self._draw()
            else:
                self._step_aside()

    def stop(self) -> None:
        """Draw no more."""
        with self._lock:
            self._is_stopped = True
            self._erase()
            self._step_aside()

    def write_above(self, stream: TextIO, lines: str) -> None:
        """Write whole lines to a stream that ends on the same screen."""
        with self._lock:
            self._erase()
            stream.write(lines)
            stream.flush()
            if self._outer is not None:
                self._draw()

    # -- on the screen -------------------------------------------------------------------------------------------------

    def _erase(self) -> None:
        if self._num_drawn:
            self._console.file.write(f"\x1b[{self._num_drawn}A\r\x1b[J")
            self._console.file.flush()
            self._num_drawn = 0

    def _draw(self) -> None:
        longest = max(map(len, self._rows))
        for name, progress in self._rows.items():
            row = self.row(name.ljust(longest), progress, self._marks.get(name, ()))
            self._console.print(row, no_wrap=True, overflow="ellipsis", crop=True, highlight=False)
            self._num_drawn += 1

    def row(self, name: str, progress: LoadProgress, marks: Sequence[float]) -> Text:
        """A model's row: name, bar, percent, words."""
        from rich.text import Text

        share = progress.bytes_loaded / progress.bytes_total if progress.bytes_total else 0.0
        served = 0.0
        if progress.stage:
            served = marks[progress.stage - 1] if len(marks) >= progress.stage else share
        line, joint = ("━", "╋") if self._console.encoding.startswith("utf") else ("=", "|")
        joints = {min(_WIDTH - 1, round(mark * _WIDTH)) for mark in marks if mark < 1}
        cells = "".join(joint if cell in joints else line for cell in range(_WIDTH))
        loaded, green = round(share * _WIDTH), round(min(served, share) * _WIDTH)
        row = Text(f"{name} ")
        for style, part in ((_SERVED, cells[:green]), (_LOADED, cells[green:loaded]), (_REST, cells[loaded:])):
            row.append(part, style)
        row.append(f" {share:4.0%}  " if progress.bytes_total else "       ")
        return row.append(_words(progress), "yellow" if progress.error is not None else "")

    # -- between others and the screen ---------------------------------------------------------------------------------

    def _step_between(self) -> None:
        """Have what others write to this screen pass above the bar."""
        if self._outer is not None:
            return
        self._outer = sys.stdout, sys.stderr
        if sys.stdout.isatty():
            sys.stdout = _Above(self, sys.stdout)
        sys.stderr = _Above(self, sys.stderr)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self._outer[1]:
                above = _Above(self, handler.stream)
                handler.stream = above  # `setStream` would wait for whoever logs, who may wait for our lock
                self._passed.append((handler, above))

    def _step_aside(self) -> None:
        if self._outer is None:
            return
        outer, self._outer = self._outer, None
        for above in (sys.stdout, sys.stderr):
            if isinstance(above, _Above):
                above.close_part()
        sys.stdout, sys.stderr = outer
        for handler, above in self._passed:
            if handler.stream is above:
                handler.stream = above.stream
        self._passed.clear()


class _Above:
    """A stream whose lines are written above a bar, once they are whole."""

    def __init__(self, bar: LoadBar, stream: TextIO) -> None:
        self.stream = stream
        self._bar = bar
        self._part = ""

    def write(self, text: str) -> int:
        lines, end, self._part = (self._part + text).rpartition("\n")
        if end:
            self._bar.write_above(self.stream, lines + end)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def close_part(self) -> None:
        """Write what has no end of line yet."""
        self.stream.write(self._part)
        self._part = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _words(progress: LoadProgress) -> str:
    if progress.stage:
        parts = [f"stage {progress.stage} of {progress.num_stages} serves" if progress.num_stages > 1 else "serves"]
    else:
        parts = [_PHASES.get(progress.phase, "loading")]
    if progress.error is not None:
        parts.append(progress.error)
    elif progress.seconds_left is not None:
        parts.append(f"{ceil(progress.seconds_left)} s left")
    return " · ".join(parts)
