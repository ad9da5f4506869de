"""The load bar, as a terminal shows it."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from quire.outputs import LoadProgress
from quire.server.load_bar import LoadBar
from quire.server.log_format import configure_logging

HIDE_CURSOR = "\x1b[?25l"


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True

    def take(self) -> str:
        written = self.getvalue()
        self.seek(0)
        self.truncate()
        return written


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error, the log's target, within the test, since pytest replaces it between phases."""
    terminal, root = Terminal(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    configure_logging()
    return terminal


def test_each_model_has_a_row_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    bar = LoadBar.on_terminal()
    assert bar is not None
    bar.show("pack", LoadProgress(0, 3, 0, 0, phase="imports"))
    assert "pack" in (shown := terminal.take())
    assert "starting" in shown
    bar.show("plain", LoadProgress(0, 1, 30, 300, 41.4))
    bar.show("pack", LoadProgress(1, 3, 62, 100, 12.4))
    for words in (" 62% stage 1 of 3 serves · 13 s left", " 10% loading · 42 s left"):
        assert words in (shown := terminal.take() + shown)
    bar.show("pack", LoadProgress(2, 3, 80, 100, error="the disk, which is far away, does not answer"))
    assert "stage 2 of 3 serves · the disk" in terminal.take()
    bar.show("plain", LoadProgress(0, 1, 30, 300, phase="failed"))
    assert "plain" not in terminal.take()
    bar.show("pack", LoadProgress(3, 3, 100, 100, 0.0))
    terminal.take()
    logging.getLogger().warning("a line")
    assert "pack" not in terminal.take()


def test_log_lines_stand_above_the_bar_and_the_cursor_is_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    bar = LoadBar.on_terminal()
    assert bar is not None
    bar.show("pack", LoadProgress(0, 1, 1, 2))
    before = terminal.take()
    logging.getLogger().warning("a line")
    shown = terminal.take()
    assert shown.index("a line") < shown.index("pack"), "the row is drawn again below"
    bar.stop()
    assert sys.stderr is terminal
    assert HIDE_CURSOR not in before + shown + terminal.take()
    bar.show("pack", LoadProgress(0, 1, 1, 2))
    assert terminal.take() == ""


def test_what_is_printed_elsewhere_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stdout", pipe)
    bar = LoadBar.on_terminal()
    assert bar is not None
    bar.show("pack", LoadProgress(0, 1, 1, 2))
    print("Quire serves pack")
    bar.stop()
    assert pipe.getvalue() == "Quire serves pack\n"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert LoadBar.on_terminal() is None
