"""Standard input and output of commands, as pipes or a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from quire.cli.chat.screens import PlainScreen
from quire.cli.pipes import printable, write_answer, write_text
from quire.client.chunk import AnswerChunk, AnswerStream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def chunks(*texts: str, fails: bool = False) -> AnswerStream:
    for text in texts:
        yield AnswerChunk(text, is_token=True)
    if fails:
        raise RuntimeError("failed")


def test_control_characters_never_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printable("a\x1b[2Jb\r\nc\td\x07\x9b") == "a[2Jb\nc\td"
    for write in (write_text, write_answer, PlainScreen().show):
        monkeypatch.setattr("sys.stdout", screen := Terminal())
        write(chunks("a\x1b[2J", "b\r"))
        assert screen.getvalue() == "a[2Jb\n"


@pytest.mark.parametrize("texts", [("a", "b"), ("a", "b\n"), ("a", "b\n", "")])
def test_a_text_ends_with_one_line_break_whether_it_is_whole_or_not(
    texts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_text(chunks(*texts))
    assert capsys.readouterr().out == "ab\n"
    with pytest.raises(RuntimeError, match="failed"):
        write_text(chunks(*texts, fails=True))
    assert capsys.readouterr().out == "ab\n"


def test_an_empty_answer_is_an_empty_line_and_one_that_failed_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not write_text(chunks())
    assert capsys.readouterr().out == ""
    write_answer(chunks(""))
    assert capsys.readouterr().out == "\n"
    with pytest.raises(RuntimeError, match="failed"):
        write_answer(chunks(fails=True))
    assert capsys.readouterr().out == ""


def test_an_answer_is_closed_when_its_reader_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    is_closed = []

    def endless() -> Iterator[AnswerChunk]:
        try:
            while True:
                yield AnswerChunk("a", is_token=True)
        finally:
            is_closed.append(True)

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Gone())
    answer = endless()
    with pytest.raises(BrokenPipeError):
        write_answer(answer)
    assert is_closed == [True]
