"""`quire info`: a model's shape, support and memory."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.cli.options import MODEL_HELP, check_model
from quire.config import QUANTIZATIONS, format_size

EXAMPLE = "Example: quire info random:qwen2.5-0.5b"


def info(
    model: Annotated[str | None, typer.Argument(callback=check_model, help=MODEL_HELP)] = None,
    option: Annotated[str | None, typer.Option("--model", envvar="QUIRE_MODEL", callback=check_model)] = None,
) -> None:
    """Show a model's shape, whether it is supported, and the memory of its weights and KV."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.loading.modules.units import memory_of
    from quire.models.model_config import DTYPE_BYTES, ModelConfigError

    if (name := model or option) is None:
        raise ValueError("no model is given; name a directory, a hub id, an embedded model or a preset")
    source = resolve_model(name, load_format="random")  # reads the config only
    try:
        config = source.config
    except ModelConfigError as error:
        named = source.hf_config.get("architectures") or [source.hf_config.get("model_type")]
        what, reason = ", ".join(map(str, named)), str(error).removeprefix(f"{source.name}: ")
        typer.echo(f"{source.name}: {reason if what in reason else f'{what}, not supported: {reason}'}")
        raise typer.Exit(1) from None
    table = Table("", "", show_header=False, box=None)
    for name, value in (
        ("model", source.name),
        ("architecture", f"{config.architecture} (supported)"),
        *((("part", f"the text of {config.text_of}"),) if config.text_of else ()),
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
    for quantization in QUANTIZATIONS[1:]:
        known = ("float32", "bfloat16")
        sizes = [format_size(memory_of(config, dtype, quantization)) if dtype in known else "" for dtype in DTYPE_BYTES]
        memory.add_row(f"all weights, {quantization} (CPU)", *sizes)
    memory.add_row("KV a token", *(format_size(config.kv_bytes_per_token(dtype)) for dtype in DTYPE_BYTES))
    contexts = [config.context_length * config.kv_bytes_per_token(dtype) for dtype in DTYPE_BYTES]
    least = [config.weight_bytes(dtype) + kv for dtype, kv in zip(DTYPE_BYTES, contexts, strict=True)]
    memory.add_row("to serve one whole context", *map(format_size, least))
    console = Console()
    console.print(table)
    console.print()
    console.print(memory)
