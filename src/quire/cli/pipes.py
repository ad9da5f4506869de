"""Read a prompt from standard input, write an answer to standard output; both may be pipes or terminals."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import typer

# Control characters except tab and line break.
_CONTROLS = {code: None for code in range(0xA0) if unicodedata.category(chr(code)) == "Cc" and chr(code) not in "\t\n"}


def read_prompt(given: str | None) -> str:
    """Return the given prompt, or standard input for - or None."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise ValueError('no prompt is given; pass it as an argument, such as "Once upon a time", or pipe it in')
    try:
        # The final line break of a pipe is not part of the prompt: a model would continue on a new line.
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8 text: {error}") from None


def printable(text: str) -> str:
    """Remove control characters: a model must not control the terminal."""
    return text.translate(_CONTROLS)


def write_text(chunks: Iterable[Any]) -> bool:
    """Write an answer chunk by chunk, and end the line even after a failure. Return whether there was any text."""
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
    """Write the `AnswerChunk`s of a generator and close it; on a terminal, print the cost to stderr."""
    from quire.client.answer_cost import AnswerCost

    cost = AnswerCost()
    with closing(chunks):
        if not write_text(cost.watch(chunks)):
            print(flush=True)
    if sys.stdout.isatty() and sys.stderr.isatty():
        typer.secho(f"[{cost}]", err=True, dim=True)
