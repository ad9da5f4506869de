"""`quire`: its commands in panels. A command's module is imported when it runs."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

import quire
from quire.cli.command import App, Command, Commands
from quire.settings import LogLevel

if TYPE_CHECKING:
    from quire.system.child_process import ChildProcess

#: Panel of the help -> command -> module, with a function of the same name or a group named `app`.
PANELS = {
    "Serve and ask": {
        "serve": "quire.cli.serve.commands",
        "run": "quire.cli.chat.run",
        "launch": "quire.cli.launch.commands",
        "chat": "quire.cli.chat.commands",
        "complete": "quire.cli.complete",
        "generate": "quire.cli.generate",
        "run-batch": "quire.cli.run_batch",
        "why": "quire.cli.why",
        "route": "quire.cli.route",
    },
    "Models": {
        "models": "quire.cli.models.models",
        "pull": "quire.cli.models.pull",
        "info": "quire.cli.models.info",
        "digest": "quire.cli.models.digest",
        "save": "quire.cli.models.save",
        "stages": "quire.cli.stages.commands",
    },
    "Documents": {"rag": "quire.cli.rag.commands", "kv": "quire.cli.kv.commands"},
    "Measure": {
        "calibrate": "quire.cli.calibrate",
        "simulate": "quire.cli.simulate",
        "bench": "quire.cli.bench",
        "kernels": "quire.cli.kernels.commands",
    },
}
#: Variables besides options.
_VARIABLES = {"QUIRE_BACKEND", "QUIRE_CONFIG", "QUIRE_KERNELS", "QUIRE_MODEL", "QUIRE_TRACEBACK", "QUIRE_URL"}
COMMANDS = {name: (module, panel) for panel, modules in PANELS.items() for name, module in modules.items()}


def make_app(command: str | None = None) -> typer.Typer:
    """Return the command line with all commands, or with one: creating all options takes a second."""
    app = App(
        cls=Commands,
        help="Serve open-weight language models. Every option of the engine and of serve, such as --block-size, can "
        "also be set in the environment: QUIRE_BLOCK_SIZE=32.",
        epilog="Example: quire serve, and then quire chat --url http://127.0.0.1:8000",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_all_commands)
    for name in COMMANDS if command is None else [command]:
        path, panel = COMMANDS[name]
        module = importlib.import_module(path)
        if (group := getattr(module, "app", None)) is not None:
            app.add_typer(group, name=name, rich_help_panel=panel)
        else:
            kind = getattr(module, "COMMAND", Command)
            app.command(cls=kind, epilog=module.EXAMPLE, rich_help_panel=panel)(getattr(module, name.replace("-", "_")))
    return app


def main(engine: ChildProcess | None = None) -> None:
    """Run the command line of this process; `serve` uses a started `engine_child`."""
    completed = os.environ.get("COMP_WORDS", "").split()  # the shell completes a command line
    words = completed or sys.argv
    first = words[1] if len(words) > 1 else ""
    make_app(first if first in COMMANDS else None)(prog_name="quire", obj=engine)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"quire {quire.__version__}")
        raise typer.Exit()


def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(envvar="QUIRE_LOG_LEVEL", help="Least severe log lines; info by default.", show_envvar=False),
    ] = None,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("quire").setLevel((log_level or "info").upper())
    if log_level is not None:
        os.environ["QUIRE_LOG_LEVEL"] = log_level  # for a command's own --log-level
    _warn_of_unknown_variables()


def _warn_of_unknown_variables() -> None:
    """Name each variable QUIRE_... that is no option. Kubernetes sets some for a service named quire."""
    if os.environ.get("VLLM_API_KEY") and not os.environ.get("QUIRE_API_KEY"):
        logging.getLogger("quire").warning("VLLM_API_KEY is ignored; set QUIRE_API_KEY, or clients need no key")
    given = [name for name in os.environ if re.match(r"QUIRE_(?!TEST_|(\w+_)?(PORT|SERVICE)_)", name)]
    if not given:
        return
    from quire.cluster.settings import ClusterSettings
    from quire.config import EngineConfig
    from quire.server.settings import ServerSettings
    from quire.settings import option_name, setting_fields

    fields = [field for kind in (EngineConfig, ServerSettings, ClusterSettings) for field in setting_fields(kind)]
    known = {*_VARIABLES, *(f"QUIRE_{option_name(field).upper()}" for field in fields)}
    for name in set(given) - known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        logging.getLogger("quire").warning("%s in the environment is no option%s", name, hint)
