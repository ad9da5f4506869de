"""`quire info`: a model's shape, support, memory and expected speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.options import MODEL_HELP, check_model
from quire.config import QUANTIZATIONS, format_size

if TYPE_CHECKING:
    from quire.loading import ModelSource

EXAMPLE = "Example: quire info random:qwen2.5-0.5b"


def info(
    model: Annotated[str | None, typer.Argument(callback=check_model, help=MODEL_HELP)] = None,
    option: Annotated[str | None, typer.Option("--model", envvar="QUIRE_MODEL", callback=check_model)] = None,
) -> None:
    """Show a model's shape, whether it is supported, the memory of its weights and KV, and the speed to expect."""
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
    storage = _storage(source)
    is_encoded = "kernels" in dict(storage)
    table = Table("", "", show_header=False, box=None)
    for name, value in (
        ("model", source.name),
        ("architecture", f"{config.architecture} (supported)"),
        *((("part", f"the text of {config.text_of}"),) if config.text_of else ()),
        ("parameters", _in_millions(config.num_parameters)),
        *((("active", f"{_in_millions(config.num_active_parameters)} for a token"),) if config.experts else ()),
        ("layers", f"{config.num_layers} of width {config.hidden_size}"),
        ("attention", f"{config.num_heads} heads of {config.head_dim}, {config.num_kv_heads} for KV"),
        ("context", f"{config.context_length:,} tokens" + (f", RoPE {config.rope.rope_type}" if config.rope else "")),
        ("vocabulary", f"{config.vocab_size:,} tokens"),
        *storage,
    ):
        table.add_row(name, str(value))
    memory = Table("memory", *DTYPE_BYTES, box=None)
    weights = [_encoded_bytes(source, dtype) if is_encoded else config.weight_bytes(dtype) for dtype in DTYPE_BYTES]
    memory.add_row("weights, as loaded (CPU)" if is_encoded else "weights", *map(format_size, weights))
    if not is_encoded:
        packed12 = format_size(memory_of(config, "bfloat16", weights="packed12"))
        memory.add_row("all weights, packed12 (CPU)", *(packed12 if each == "bfloat16" else "" for each in DTYPE_BYTES))
    for quantization in QUANTIZATIONS[1:]:
        known = ("float32", "bfloat16")
        sizes = [format_size(memory_of(config, dtype, quantization)) if dtype in known else "" for dtype in DTYPE_BYTES]
        memory.add_row(f"all weights, {quantization}", *sizes)
    memory.add_row("KV a token", *(format_size(config.kv_bytes(dtype)) for dtype in DTYPE_BYTES))
    num_states = sum(layer.has_state for layer in config.layer_configs)
    state_bytes = 0 if config.state is None else 4 * config.state.num_floats() * num_states
    if state_bytes:
        memory.add_row("state a sequence", *[format_size(state_bytes)] * len(DTYPE_BYTES))
    contexts = [config.kv_bytes(dtype, config.context_length) + state_bytes for dtype in DTYPE_BYTES]
    least = [own + kv for own, kv in zip(weights, contexts, strict=True)]
    memory.add_row("to serve one whole context", *map(format_size, least))
    console = Console()
    console.print(table)
    console.print()
    console.print(memory)


def _in_millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M"


def _encoded_bytes(source: ModelSource, dtype: str) -> int:
    """Return the memory of weights that stay encoded where kernels compute with them."""
    from quire.loading.layer_loader import LayerLoader

    with LayerLoader(source, dtype=dtype, device="cpu") as loader:
        loader.lay_out("plain")
        return loader.pending_memory()


def _storage(source: ModelSource) -> list[tuple[str, str]]:
    """Describe the weights on disk, the layers that compute with them as they are, and the speed to expect."""
    from quire.loading import ModelLoadError
    from quire.loading.checkpoint import read_headers
    from quire.models.encodings import BLOCKS
    from quire.models.linear.block_weight import TYPES
    from quire.system.memory_reader import MemoryReader

    config, sizes = source.config, dict[str, int]()
    try:
        for entry in {} if source.path is None else read_headers(source.path).values():
            sizes[entry.dtype] = sizes.get(entry.dtype, 0) + entry.num_bytes
    except ModelLoadError:
        sizes.clear()  # without weights on disk
    if not sizes:
        return [("stored as", str(config.dtype))]
    total, decoded = sum(sizes.values()), [name for name in sizes if name in BLOCKS and name not in TYPES]
    parts = ", ".join(f"{name} {size / total:.0%}" for name, size in sorted(sizes.items(), key=lambda each: -each[1]))
    rows = [("stored as", f"{format_size(total)}: {parts}")]
    if config.quantized is not None and config.quantized.method == "fp8":
        decoded.append("FP8")
    if config.quantized is not None or sizes.keys() & BLOCKS.keys():
        rows.append(("kernels", f"{', '.join(decoded)} decoded to floats" if decoded else "weights stay encoded"))
    active = total * config.num_active_parameters / config.num_parameters
    memory = MemoryReader()
    bandwidth = max(memory.measure() for _ in range(3))
    speed = f"about {bandwidth / active:,.0f} tokens a second in one stream"
    read = f"{format_size(active)} for each, and memory reads {bandwidth / 1e9:.0f} GB/s now"
    return [*rows, ("speed", f"{speed}: {read}")]
