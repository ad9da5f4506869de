"""Input and output of a chat: a terminal, or plain pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire.cli.pipes import printable, write_text


class PlainScreen:
    """Pipes: each input line is a message, and only answers go to standard output."""

    is_terminal = False

    def welcome(self, name: str) -> None:
        pass

    def read(self) -> str | None:
        """Return the next message or command; None at the end. Ctrl-C raises KeyboardInterrupt."""
        if sys.stdin.isatty():  # a user types, but answers are redirected
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        return line.strip() if line else None

    def show(self, chunks: Iterable[Any]) -> None:
        write_text(chunks)

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def list(self, entries: Mapping[str, str]) -> None:
        for name, value in entries.items():
            print(f"{name}: {value}", flush=True)

    def fail(self, text: str) -> None:
        print(f"Error: {text}", file=sys.stderr, flush=True)


class TerminalScreen:
    """A terminal: colours, a line editor, and a spinner until the first token."""

    is_terminal = True

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._typed: Callable[[], str] = str
        mark = "{}"
        try:
            import readline  # enables line editing and history in input()

            self._typed = readline.get_line_buffer
            mark = "\001{}\002"  # marks escape sequences as zero-width for the line editor
        except ImportError:
            pass
        is_plain = self._console.no_color or self._console.color_system is None
        colour, end = ("", "") if is_plain else (mark.format("\033[1;36m"), mark.format("\033[0m"))
        # ASCII, because line editors may miscount other characters.
        self._prompt, self._continued = f"{colour}>{end} ", f"{colour}.{end} "

    def welcome(self, name: str) -> None:
        self._console.print(f"[bold]{_escaped(name)}[/] is listening. /help lists commands; Ctrl-D leaves.\n")

    def read(self) -> str | None:
        lines: list[str] = []
        while True:
            try:
                line = input(self._continued if lines else self._prompt)
            except EOFError:
                self._console.print()
                return None
            except KeyboardInterrupt:
                self._console.print()
                if not lines and not self._typed():
                    raise
                lines = []  # discard the typed text, as a shell does
                continue
            lines.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(lines).strip()

    def show(self, chunks: Iterable[Any]) -> None:
        status = self._console.status("[dim]…[/]")
        is_thinking = False
        status.start()
        try:
            for chunk in chunks:
                if chunk.reasoning or chunk.text:
                    status.stop()
                if chunk.reasoning:
                    is_thinking = True
                    self._console.out(printable(chunk.reasoning), style="dim italic", end="", highlight=False)
                if chunk.text:
                    if is_thinking:
                        self._console.print("\n")
                        is_thinking = False
                    self._console.out(printable(chunk.text), end="", highlight=False)
        finally:
            status.stop()
            self._console.print()

    def note(self, text: str) -> None:
        self._console.print(f"[dim]{_escaped(text)}[/]", soft_wrap=True)

    def list(self, entries: Mapping[str, str]) -> None:
        width = max(map(len, entries))
        for name, value in entries.items():
            self._console.print(f"  [bold]{_escaped(name):<{width}}[/]  {_escaped(value)}")

    def fail(self, text: str) -> None:
        self._console.print(f"[red]{_escaped(text)}[/]", soft_wrap=True)


Screen = PlainScreen | TerminalScreen


def choose_screen() -> Screen:
    """Return a terminal screen if both input and output are terminals."""
    return TerminalScreen() if sys.stdin.isatty() and sys.stdout.isatty() else PlainScreen()


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))
