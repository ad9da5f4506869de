"""`quire`: the command groups, `info` and `models`. A command's module is imported when it runs."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import quire
from quire.config import QUANTIZATIONS, format_size
from quire.settings import LogLevel

#: Command -> module, with a function of the same name or a group named `app`.
COMMANDS = {
    "bench": "quire.cli.bench",
    "kv": "quire.cli.kv.commands",
    "rag": "quire.cli.rag.commands",
    "stages": "quire.cli.stages.commands",
    "kernels": "quire.cli.kernels.commands",
    "serve": "quire.cli.serve",
    "chat": "quire.cli.chat.commands",
    "complete": "quire.cli.complete",
    "calibrate": "quire.cli.calibrate",
    "digest": "quire.cli.digest",
    "save": "quire.cli.save",
    "simulate": "quire.cli.simulate",
    "route": "quire.cli.route",
    "generate": "quire.cli.generate",
}


class Commands(TyperGroup):
    """Command group that prints a ValueError in one line (QUIRE_TRACEBACK=1: with its traceback)."""

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


def make_app(command: str | None = None) -> typer.Typer:
    """Return the command line with all commands, or with one: creating all options takes a second."""
    app = typer.Typer(
        cls=Commands,
        help="Serve open-weight language models. Every option of the engine and of serve, such as --block-size, can "
        "also be set in the environment: QUIRE_BLOCK_SIZE=32.",
        epilog="Example: quire serve, and then quire chat --url http://127.0.0.1:8000",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables truncate long option names
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_all_commands)
    for name in COMMANDS if command is None else [command]:
        module = importlib.import_module(COMMANDS[name])
        if (group := getattr(module, "app", None)) is not None:
            app.add_typer(group, name=name)
        else:
            app.command(cls=getattr(module, "COMMAND", None), epilog=module.EXAMPLE)(getattr(module, name))
    if command is None:
        app.command(epilog="Example: quire info --model random:qwen2.5-0.5b")(info)
        app.command(epilog="Example: quire models")(models)
    return app


def main() -> None:
    """Run the command line of this process."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    make_app(first if first in COMMANDS else None)(prog_name="quire")


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


def info(model: Annotated[str, typer.Option(envvar="QUIRE_MODEL", help="A directory, a hub id or a preset.")]) -> None:
    """Show a model's shape, whether it is supported, and the memory of its weights and KV."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.loading.modules.units import memory_of
    from quire.models.model_config import DTYPE_BYTES, ModelConfigError

    source = resolve_model(model, load_format="random")  # reads the config only
    try:
        config = source.config
    except ModelConfigError as error:
        named = source.hf_config.get("architectures") or [source.hf_config.get("model_type")]
        typer.echo(f"{source.name}: {', '.join(map(str, named))}, not supported: {error}")
        raise typer.Exit(1) from None
    table = Table("", "", show_header=False, box=None)
    for name, value in (
        ("model", source.name),
        ("architecture", f"{config.architecture} (supported)"),
        ("parameters", f"{config.num_parameters / 1e6:,.1f} M"),
        ("layers", f"{config.num_layers} of width {config.hidden_size}"),
        ("attention", f"{config.num_heads} heads of {config.head_dim}, {config.num_kv_heads} for KV"),
        ("context", f"{config.context_length:,} tokens" + (f", RoPE {config.rope.rope_type}" if config.rope else "")),
        ("vocabulary", f"{config.vocab_size:,} tokens"),
        ("stored as", config.dtype),
    ):
        table.add_row(name, str(value))
    memory = Table("memory", *DTYPE_BYTES, box=None)
    memory.add_row("weights", *(format_size(config.weight_bytes(dtype)) for dtype in DTYPE_BYTES))
    if config.tie_word_embeddings:
        memory.add_row(
            "copy of the head (CPU without kernels)",
            *(format_size(config.packed_head_bytes(dtype)) for dtype in DTYPE_BYTES),
        )
    for quantization in QUANTIZATIONS[1:]:
        known = ("float32", "bfloat16")
        sizes = [format_size(memory_of(config, dtype, quantization)) if dtype in known else "" for dtype in DTYPE_BYTES]
        memory.add_row(f"all weights, {quantization} (CPU)", *sizes)
    memory.add_row("KV a token", *(format_size(config.kv_bytes_per_token(dtype)) for dtype in DTYPE_BYTES))
    console = Console()
    console.print(table)
    console.print()
    console.print(memory)


def models() -> None:
    """List the embedded models, the supported architectures and the presets."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.loading.presets import preset_names
    from quire.loading.source import EMBEDDED_MODELS
    from quire.models.registry import ARCHITECTURES

    embedded = Table("embedded", "parameters", "use", box=None)
    for name, purpose in EMBEDDED_MODELS.items():
        embedded.add_row(name, f"{resolve_model(name).config.num_parameters / 1e6:,.1f} M", purpose)
    table = Table("architecture", "models", box=None)
    for architecture in ARCHITECTURES.values():
        table.add_row(architecture.name, architecture.families)
    console = Console()
    console.print(embedded)
    console.print()
    console.print(table)
    console.print("\nPresets (known shapes with random weights):", highlight=False)
    console.print(", ".join(preset_names()), highlight=False)
