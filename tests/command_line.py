"""The complete command line, made once for all tests."""

from functools import cache

import typer.testing

from quire.cli.main import make_app

app = make_app()
# Else each invocation makes all commands and their hundreds of options again.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
