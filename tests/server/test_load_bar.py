"""The bar of stages, as a terminal shows it."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest
from rich.console import Console

from quire.outputs import LoadProgress
from quire.server.load_bar import LoadBar


class Terminal(io.StringIO):
    """Knows as much of a screen as the bar asks of it."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines = [""]
        for up, down, text in re.findall(r"\x1b\[(\d+)A\r\x1b\[J|(\n)|([^\n\x1b]+|\x1b\[[\d;]*m)", self.getvalue()):
            if up:
                assert lines.pop() == "", "the cursor stands below the bar"
                del lines[-int(up) :]
                lines.append("")
            elif down:
                lines.append("")
            elif not text.startswith("\x1b"):
                lines[-1] += text
        return lines


def test_the_bar_stays_below_all_that_is_said_and_goes_when_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    handler = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = LoadBar(Console(file=terminal, force_terminal=True, width=90), {"pack": (0.5, 0.75, 1.0)})
    bar.take("pack", LoadProgress(0, 3, 0, 0, phase="imports"))
    assert re.fullmatch(r"pack ━+╋━+╋━+ +starting", terminal.screen[0])
    bar.take("plain", LoadProgress(0, 1, 30, 300, 41.4))
    bar.take("pack", LoadProgress(1, 3, 62, 100, 12.4))
    logging.getLogger().warning("a line")
    print("Quire serves", "pack", flush=True)
    print("half a", end=" ")
    assert terminal.screen[:2] == ["a line", "Quire serves pack"]
    assert [row.partition(" ")[0] for row in terminal.screen[2:]] == ["pack", "plain", ""]
    assert terminal.screen[2].endswith("62%  stage 1 of 3 serves · 13 s left")
    assert terminal.screen[3].endswith("10%  loading · 42 s left")
    bar.take("pack", LoadProgress(2, 3, 80, 100, error="the disk, which is far away, does not answer"))
    assert "80%  stage 2 of 3 serves · the" in terminal.screen[2]
    assert len(terminal.screen[2]) == 90, "a row is a line"
    bar.take("plain", LoadProgress(0, 1, 30, 300, phase="failed"))
    bar.take("pack", LoadProgress(3, 3, 100, 100, 0.0))
    print("line")
    assert terminal.screen == ["a line", "Quire serves pack", "half a line", ""]
    assert sys.stdout is sys.stderr is handler.stream is terminal


def test_a_bar_that_is_stopped_leaves_nothing_and_one_without_a_terminal_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    bar = LoadBar.on_terminal({})
    assert bar is not None
    bar.take("a", LoadProgress(0, 1, 1, 2))
    bar.stop()
    bar.take("a", LoadProgress(0, 1, 1, 2))
    assert (terminal.screen, sys.stderr) == ([""], terminal)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert LoadBar.on_terminal({}) is None
