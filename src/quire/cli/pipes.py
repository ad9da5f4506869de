"""Standard input and output, be they pipes or a terminal: a prompt in, an answer's text out."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import typer

# Control characters, but for tab and line break.
_CONTROLS = {code: None for code in range(0xA0) if unicodedata.category(chr(code)) == "Cc" and chr(code) not in "\t\n"}


def read_prompt(given: str | None) -> str:
    """The prompt that was given; what standard input holds where that is - or nothing."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise ValueError('which prompt? Give it as an argument, such as "Once upon a time", or pipe it in')
    try:
        # The line break that ends a piped text belongs to the pipe: a model would go on in a new line after it.
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8 text: {error}") from None


def printable(text: str) -> str:
    """The text without control characters: a model must not move the cursor or rename the window."""
    return text.translate(_CONTROLS)


def write_text(chunks: Iterable[Any]) -> bool:
    """Write an answer's text chunk by chunk, and end the line even after a failure.

    Returns:
        Whether there was any.
    """
    out, last = sys.stdout, ""
    try:
        for chunk in chunks:
            text = printable(chunk.text) if out.isatty() else chunk.text
            out.write(text)
            out.flush()
            last = text or last
    finally:
        if last and not last.endswith("\n"):
            print(flush=True)
    return bool(last)


def write_answer(chunks: Any) -> None:
    """Write an answer and end its line, be it empty; where both outputs are a terminal, say what it cost on stderr.
    The generator of `AnswerChunk`s is closed at the end."""
    from quire.client.answer_cost import AnswerCost

    cost = AnswerCost()
    with closing(chunks):
        if not write_text(cost.watch(chunks)):
            print(flush=True)
    if sys.stdout.isatty() and sys.stderr.isatty():
        typer.secho(f"[{cost}]", err=True, dim=True)
