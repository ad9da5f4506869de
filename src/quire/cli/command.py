"""Base classes of all commands: help in panels, options with underscores, errors in one line."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from quire.cli.panels import PANELS

_MAX_WIDTH = 110  # longer lines are hard to read
_TYPES = {"str": "TEXT", "int": "N", "float": "X", "path": "PATH"}
#: Commands of other engines.
_ELSEWHERE = {
    **dict.fromkeys(("list", "ls"), "models"),
    **dict.fromkeys(("start", "start-server"), "serve MODEL"),
    "completion": "--install-completion",
    "download": "pull MODEL",
    "ps": "chat --url URL, or GET /v1/models",
    "show": "info MODEL",
    "version": "--version",
}


class PanelHelp:
    """Draws `--help` in panels, one for each `rich_help_panel`. Typer's own panels truncate long option names."""

    help: str | None
    epilog: str | None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table

        out, width = io.StringIO(), min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        console = Console(file=out, width=width, force_terminal=sys.stdout.isatty(), highlight=False, markup=False)
        console.print(f"Usage: {ctx.command_path} {' '.join(ctx.command.collect_usage_pieces(ctx))}\n", soft_wrap=True)
        console.print(_joined(self.help) + "\n")
        for title, rows in self._panels(ctx).items():
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(
                style="cyan", width=10 if all(name.islower() and name.isalpha() for name, _ in rows) else 32
            )
            table.add_column()
            for row in rows:
                table.add_row(*row)
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        note, example, command = _joined(self.epilog).partition("Example:")
        console.print(f"\n{note}\n" if note else "")
        console.print(example + command, soft_wrap=True)  # to be copied
        formatter.write(out.getvalue())

    def _panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        panels: dict[str, list[tuple[str, str]]] = {}
        parameters = ctx.command.get_params(ctx)
        long_names = {each.name: each.opts[0] for each in parameters if "_" in each.name and each.opts}
        for each in parameters:
            if (record := each.get_help_record(ctx)) is not None:
                is_argument = each.param_type_name == "argument"
                default = "Arguments" if is_argument else "Options"
                shown = (lambda found: "") if is_argument else (lambda found: _TYPES.get(found[1], found[1]))
                names = re.sub(r"<(?:list\[)?([\w|]+)(?: range)?\]?>", shown, record[0])
                names = _argument(names) if is_argument else names
                text = re.sub(r"\b[a-z]+_\w+\b(?!\.\w)", lambda found: long_names.get(found[0], found[0]), record[1])
                panels.setdefault(each.rich_help_panel or default, []).append((names, text))
        for name, command in getattr(self, "commands", {}).items():
            panel = panels.setdefault(command.rich_help_panel or "Commands", [])
            panel.append((name, (command.help or "").partition("\n\n")[0]))
        places = {panel: place for place, panel in enumerate(["Arguments", "Options", *PANELS])}
        return dict(sorted(panels.items(), key=lambda item: places.get(item[0], 1)))


class Command(PanelHelp, TyperCommand):
    """A command; also accepts its options with underscores, such as --max_model_len."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for each in self.params for name in (*each.opts, *each.secondary_opts)}
        for each in self.params:
            each.process_value = partial(_process, each, each.process_value)  # type: ignore[method-assign]
        return super().parse_args(ctx, [_with_dashes(each, known) for each in args])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_argument(each) for each in super().collect_usage_pieces(ctx)]


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
        super().__init__(**{"cls": Group, "no_args_is_help": True, "rich_markup_mode": None, **settings})

    def command(self, *args: Any, **settings: Any) -> Any:
        return super().command(*args, **{"cls": Command, **settings})


def _argument(name: str) -> str:
    """Return an argument's name as other programs show it: {question} becomes QUESTION."""
    return name.upper().replace("{", "").replace("}", "")


def _process(parameter: Any, process: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """Leave a missing value as it is. Typer would make a pydantic type first, in a millisecond for each option."""
    if value is None and parameter.nargs == 1 and not (parameter.required or parameter.multiple):
        return parameter.callback and parameter.callback(ctx, parameter, None)
    return process(ctx, value)


def _with_dashes(argument: str, known: set[str]) -> str:
    name, equals, value = argument.partition("=")
    dashed = name.replace("_", "-")
    return dashed + equals + value if dashed in known else argument


def _joined(text: str | None) -> str:
    """Join the lines of each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))
