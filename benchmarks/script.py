"""Command line of a benchmark script: options from settings, a user's mistake in one line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


class _Script(TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, RuntimeError) as error:
            if os.environ.get("QUIRE_TRACEBACK"):
                raise
            typer.secho(f"Error: {' '.join(str(error).split())}", fg=typer.colors.RED, err=True)
            raise typer.Exit(2) from None


def make_app(command: Callable[..., None]) -> typer.Typer:
    """The command line of one script.

    Args:
        command: decorated by `quire.cli.options.options`.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(cls=_Script, context_settings={"help_option_names": ["-h", "--help"]})(command)
    return app


def start(command: Callable[..., None]) -> None:
    """Run a script."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("quire").setLevel(logging.INFO)
    make_app(command)()
