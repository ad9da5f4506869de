"""Input and output of a chat: a terminal, or plain pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
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
    """A terminal: colours, a spinner until the first token, and prompt_toolkit's line editor with a history file."""

    is_terminal = True

    def __init__(self, commands: Sequence[str] = ()) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.shortcuts import CompleteStyle
        from rich.console import Console

        self._console = Console(highlight=False, markup=False)
        self._session: PromptSession[str] = PromptSession(
            [("" if self._console.no_color else "bold ansicyan", "> ")],
            multiline=True,  # pasted lines stay one message; Enter is bound to sending
            prompt_continuation=". ",
            key_bindings=_key_bindings(),
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            history=FileHistory(str(path)) if (path := _history_file()) is not None else None,
        )

    def welcome(self, name: str) -> None:
        self._console.print(printable(name), style="bold", end="")
        self._console.print(" is listening. /help lists commands; Ctrl-D leaves.\n")

    def read(self) -> str | None:
        while True:
            try:
                return self._session.prompt().strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    raise  # otherwise discard the typed text, as a shell does

    def show(self, chunks: Iterable[Any]) -> None:
        status = self._console.status("…")
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
        self._console.print(printable(text), style="dim", soft_wrap=True)

    def list(self, entries: Mapping[str, str]) -> None:
        width = max(map(len, entries))
        for name, value in entries.items():
            self._console.print(f"  {printable(name):<{width}}", style="bold", end="")
            self._console.print(f"  {printable(value)}", soft_wrap=True)

    def fail(self, text: str) -> None:
        self._console.print(printable(text), style="red", soft_wrap=True)


Screen = PlainScreen | TerminalScreen


def choose_screen(commands: Sequence[str] = ()) -> Screen:
    """Return a terminal screen, which completes `commands`, if both input and output are terminals."""
    return TerminalScreen(commands) if sys.stdin.isatty() and sys.stdout.isatty() else PlainScreen()


def _key_bindings() -> Any:
    """Enter sends; after a backslash, and with Alt, it starts a new line."""
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: Any) -> None:
        if event.current_buffer.document.text_before_cursor.endswith("\\"):
            event.current_buffer.delete_before_cursor()
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def start_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _history_file() -> Path | None:
    """Return the private file of earlier messages; None if it cannot be written."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        path = (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "quire" / "chat-history"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return path if os.access(path, os.R_OK | os.W_OK) else None
