"""Base classes of all commands: help in panels, options with underscores, errors in one line."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from quire.cli.panels import place

_MAX_WIDTH = 110  # longer lines are hard to read
_NAMES_WIDTH = 28  # columns for options; a longer one has a line of its own
_COMMANDS_WIDTH = 10
#: Commands of other engines.
_ELSEWHERE = {
    "download": "pull MODEL",
    "launch": "serve MODEL",
    "list": "models",
    "ls": "models",
    "ps": "chat --url URL, or GET /v1/models",
    "show": "info MODEL",
    "start": "serve MODEL",
    "start-server": "serve MODEL",
}
_TYPE = re.compile(r"<(?:list\[)?([\w|]+)\]?>")
_TYPES = {"str": "TEXT", "int": "N", "float": "X", "path": "PATH"}


class PanelHelp:
    """Draws `--help` in panels, one for each `rich_help_panel`. Typer's own panels truncate long option names."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from rich.console import Console
        from rich.panel import Panel
        from rich.text import Text

        width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=sys.stdout.isatty(), highlight=False, markup=False)
        usage, arguments = ctx.command_path, self.collect_usage_pieces(ctx)  # type: ignore[attr-defined]
        console.print(f"Usage: {usage} {' '.join(arguments)}\n", soft_wrap=True)
        console.print(_joined(self.help or "") + "\n")  # type: ignore[attr-defined]
        for title, rows in self._panels(ctx).items():
            is_short = all(" " not in names and len(names) < _COMMANDS_WIDTH for names, _ in rows)
            column = _COMMANDS_WIDTH if is_short else _NAMES_WIDTH
            lines = [line for names, text in rows for line in _row(names, text, width - 4, column)]
            console.print(Panel(Text("\n").join(lines), title=title, title_align="left", border_style="dim"))
        note, example, command = _joined(self.epilog or "").partition("Example:")  # type: ignore[attr-defined]
        console.print(f"\n{note}\n" if note else "")
        console.print(example + command, soft_wrap=True)  # to be copied
        formatter.write(out.getvalue())

    def _panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Return names and descriptions by panel, in the order of the parameters."""
        panels: dict[str, list[tuple[str, str]]] = {}
        parameters = self.get_params(ctx)  # type: ignore[attr-defined]
        long_names = {each.name: each.opts[0] for each in parameters if "_" in each.name and each.opts}
        for each in parameters:
            if (record := each.get_help_record(ctx)) is not None:
                is_argument = each.param_type_name == "argument"
                default = "Arguments" if is_argument else "Options"
                names = _TYPE.sub("" if is_argument else _shown_type, record[0])
                text = re.sub(r"\b[a-z]+_\w+\b", lambda found: long_names.get(found[0], found[0]), record[1])
                panels.setdefault(each.rich_help_panel or default, []).append((names, text))
        for name, command in getattr(self, "commands", {}).items():
            if not command.hidden:
                panel = panels.setdefault(command.rich_help_panel or "Commands", [])
                panel.append((name, (command.help or "").partition("\n\n")[0]))
        return dict(sorted(panels.items(), key=lambda item: place(item[0])))


class Command(PanelHelp, TyperCommand):
    """A command; also accepts its options with underscores, such as --max_model_len."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for each in self.params for name in (*each.opts, *each.secondary_opts)}
        return super().parse_args(ctx, [_with_dashes(each, known) for each in args])


class Group(PanelHelp, TyperGroup):
    """A group of commands."""


class Commands(Group):
    """All commands. Prints a ValueError in one line (QUIRE_TRACEBACK=1: with its traceback)."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in _ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}. Use: quire {_ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if os.environ.get("QUIRE_TRACEBACK"):
                raise
            typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


class App(typer.Typer):
    """A Typer whose groups and commands are those of this file."""

    def __init__(self, **settings: Any) -> None:
        # Typer's own rich help truncates option names.
        super().__init__(**{"cls": Group, "no_args_is_help": True, "rich_markup_mode": None, **settings})

    def command(self, *args: Any, **settings: Any) -> Any:
        return super().command(*args, **{"cls": Command, **settings})


def _shown_type(found: re.Match[str]) -> str:
    return _TYPES.get(found[1], found[1])


def _with_dashes(argument: str, known: set[str]) -> str:
    name, equals, value = argument.partition("=")
    dashed = name.replace("_", "-")
    return dashed + equals + value if dashed in known else argument


def _joined(text: str) -> str:
    """Join the lines of each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _row(names: str, text: str, width: int, column: int) -> Iterator[Any]:
    """Yield the lines of an option or command, with its description in the second column."""
    from rich.text import Text

    lines: Sequence[str] = textwrap.wrap(text, width - column - 2, break_on_hyphens=False) or [""]
    if len(names) > column:
        yield from (Text(line, style="cyan") for line in textwrap.wrap(names, width, subsequent_indent="  "))
        names = ""
    for line in lines:
        yield Text.assemble((f"{names:<{column}}  ", "cyan"), line)
        names = ""
