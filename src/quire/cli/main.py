"""`quire`: the commands and what they print. What they do is elsewhere, and is imported when a command runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import quire
from quire.cli import bench, calibrate, complete, digest, generate, route, save, serve, simulate
from quire.cli.chat import commands as chat
from quire.cli.kv import commands as kv
from quire.cli.rag import commands as rag
from quire.cli.serve_arguments import ServeCommand
from quire.cli.stages import commands as stages
from quire.config import format_size


class Commands(TyperGroup):
    """Commands whose user is told about a mistake in one line. (QUIRE_TRACEBACK=1 shows where it was noticed.)"""

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


app = typer.Typer(
    cls=Commands,
    help="Serve open-weight language models on the machine you have. Every option of the engine and of serve, such as "
    "--block-size, can also be set in the environment: QUIRE_BLOCK_SIZE=32.",
    epilog="Example: quire serve, and then quire chat --url http://127.0.0.1:8000",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long option names off
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench.app, name="bench")
app.add_typer(kv.app, name="kv")
app.add_typer(rag.app, name="rag")
app.add_typer(stages.app, name="stages")
app.command(cls=ServeCommand, epilog=serve.EXAMPLE)(serve.serve)
app.command(epilog=chat.EXAMPLE)(chat.chat)
app.command(epilog=complete.EXAMPLE)(complete.complete)
app.command(epilog=calibrate.EXAMPLE)(calibrate.calibrate)
app.command(epilog=digest.EXAMPLE)(digest.digest)
app.command(epilog=save.EXAMPLE)(save.save)
app.command(epilog=simulate.EXAMPLE)(simulate.simulate)
app.command(cls=route.RouteCommand, epilog=route.EXAMPLE)(route.route)
app.command(epilog=generate.EXAMPLE)(generate.generate)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"quire {quire.__version__}")
        raise typer.Exit()


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("quire").setLevel(logging.INFO)


@app.command(epilog="Example: quire info --model random:qwen2.5-0.5b")
def info(
    model: Annotated[str, typer.Option(envvar="QUIRE_MODEL", help="A directory, a hub id or a preset.")],
) -> None:
    """What a model is, whether it is supported, and the memory for its weights and a token's KV."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.models.model_config import DTYPE_BYTES, ModelConfigError

    source = resolve_model(model, load_format="random")  # its config alone, no weights
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
            "head's copy (CPU without kernels)",
            *(format_size(config.packed_head_bytes(dtype)) for dtype in DTYPE_BYTES),
        )
    memory.add_row("KV a token", *(format_size(config.kv_bytes_per_token(dtype)) for dtype in DTYPE_BYTES))
    console = Console()
    console.print(table)
    console.print()
    console.print(memory)


@app.command(epilog="Example: quire models")
def models() -> None:
    """The models that ship with Quire, the architectures that are served, and the presets that can be named."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.loading.presets import preset_names
    from quire.loading.source import EMBEDDED_MODELS
    from quire.models.registry import ARCHITECTURES

    embedded = Table("embedded", "parameters", "what it does", box=None)
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
