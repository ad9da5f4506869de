"""`quire stages pack`, `unpack`, `verify` and `show`: packs, checkpoints stored in stages."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.options import MODEL_HELP, Json, check_model
from quire.cli.stages.texts import by_stage
from quire.cli.tables import print_table, write_figures
from quire.config import format_size

PACK_EXAMPLE = "Example: quire stages pack --model quire-mini --out mini-pack"
VERIFY_EXAMPLE = "Example: quire stages verify mini-pack"
UNPACK_EXAMPLE = "Example: quire stages unpack mini-pack --out original"
SHOW_EXAMPLE = "Example: quire stages show mini-pack"

_ORIGIN = ("model", "method", "distance")  # facts of a plan file that a pack keeps

Pack = Annotated[Path, typer.Argument(metavar="DIR", help="The pack's directory.")]
Progress = Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")]


def pack(
    model: Annotated[str, typer.Option(callback=check_model, help=MODEL_HELP)],
    out: Annotated[Path, typer.Option(help="The new directory.")],
    plan: Annotated[Path | None, typer.Option(help="Plan file of `quire stages plan`, for stages of layers.")] = None,
    mantissa_bits: Annotated[
        int | None,
        typer.Option(min=0, max=7, help="Store bit planes; weights have N of 7 mantissa bits before the last stage."),
    ] = None,
    stages: Annotated[
        int | None, typer.Option(min=1, max=2, help="Without a plan: 2 stages by precision, or 1: an archive.")
    ] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="STAGE=DIR", help="A stage's adapter in PEFT's format; may be repeated.")
    ] = None,
    progress: Progress = True,
) -> None:
    """Write a model as a pack: in stages, or as a smaller archive.

    Without a plan, stage 1 has exponents, signs and one mantissa bit, the last stage all bits, in two thirds of the
    bytes; only Quire reads these planes. With a plan, other tools load a pack as the original model.
    """
    from quire.progressive.packs.pack import pack as write

    given, facts = _plan_of(model, plan, mantissa_bits, stages)
    if facts.get("model", model) != model:
        typer.echo(f"note: {plan} was made for {facts['model']}", err=True)
    manifest = write(
        model,
        given,
        out,
        adapters=by_stage("--adapter", adapter),
        origin={name: facts[name] for name in _ORIGIN if name in facts},
        use_tqdm=progress,
    )
    size = sum(file.num_bytes for file in manifest.files.values())
    first = manifest.stage_bytes(1) / manifest.stage_bytes(len(manifest.stages))
    typer.echo(f"{out}: {len(manifest.stages)} stages, {format_size(size)}; stage 1 has {first:.1%} of the weights")


def _plan_of(
    model: str, plan: Path | None, mantissa_bits: int | None, stages: int | None
) -> tuple[Any, dict[str, Any]]:
    """Return the `StagePlan` of a file, or one by precision, and the facts in its file."""
    from quire.loading import resolve_model
    from quire.progressive.plans import plan_precision, read_plan

    if stages is not None and plan is not None:
        raise ValueError("a plan has its own stages; leave out --stages")
    if plan is None:
        bits = mantissa_bits if mantissa_bits is not None else 7 if stages == 1 else 1
        if stages is not None and (stages == 1) != (bits == 7):
            raise ValueError(f"--mantissa-bits {bits} makes {1 if bits == 7 else 2} stages; leave out --stages")
        return plan_precision(resolve_model(model).config.num_layers, bits), {}
    given, facts = read_plan(plan)
    return given if mantissa_bits is None else replace(given, mantissa_bits=mantissa_bits, layer_bits=()), facts


def unpack(
    directory: Pack, out: Annotated[Path, typer.Option(help="The new directory.")], progress: Progress = True
) -> None:
    """Restore the original files of a pack with bit planes, byte for byte."""
    from quire.loading.checkpoint import read_headers
    from quire.loading.progress import bytes_progress
    from quire.progressive.packs.plane_files import unpack as write

    total = sum(entry.num_bytes for entry in read_headers(directory).values())
    with bytes_progress("Unpacking", total, progress) as advance:
        write(directory, out, advance)
    typer.echo(f"{out} has the original files")


def verify(directory: Pack, progress: Progress = True) -> None:
    """Read and check all files of a pack. Exits with status 1 if one is broken."""
    from quire.loading.checkpoint import read_headers
    from quire.loading.errors import ModelLoadError
    from quire.loading.progress import bytes_progress
    from quire.progressive.packs.verify import verify as check

    total = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    with contextlib.suppress(ModelLoadError):  # which the check reports
        total += sum(entry.num_bytes for entry in read_headers(directory).values())
    with bytes_progress("Checking", total, progress) as advance:
        problems = check(directory, advance)
    for problem in problems:
        typer.secho(problem, fg=typer.colors.RED, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{directory} is whole")


def show(directory: Pack, json: Json = None) -> None:
    """Show the stages of a pack: layers, bytes, adapters."""
    from quire.loading.stage_manifest import read_stage_manifest

    manifest = read_stage_manifest(directory)
    whole = manifest.stage_bytes(len(manifest.stages))
    rows: list[dict[str, Any]] = [
        {
            "stage": stage.number,
            "layers": _ranges(stage.layers),
            "adds": _ranges(group.layers),
            "num_bytes": manifest.stage_bytes(stage.number),
            "share": manifest.stage_bytes(stage.number) / whole,
            "mantissa_bits": manifest.bits_of(stage.number),  # outside layers, then by layer; or of all
            "adapter": stage.adapter,
        }
        for stage, group in zip(manifest.stages, manifest.groups, strict=True)
    ]
    print_table(
        ("stage", "layers", "adds", "weights", "of all", "mantissa bits", "adapter"),
        [
            (*list(row.values())[:3], format_size(row["num_bytes"]), f"{row['share']:.1%}",
             "all" if (bits := row["mantissa_bits"]) is None else _ranges(sorted(set(bits))), row["adapter"] or "none")
            for row in rows
        ],
    )  # fmt: skip
    typer.echo(f"\n{manifest.architecture}, {manifest.num_layers} layers, {manifest.dtype}, {manifest.weights}")
    write_figures(json, {"weights": manifest.weights, "num_layers": manifest.num_layers, "stages": rows})


def _ranges(layers: Sequence[int]) -> str:
    """[0, 1, 2, 7] -> "0-2, 7"."""
    parts: list[list[int]] = []
    for layer in layers:
        if parts and parts[-1][-1] == layer - 1:
            parts[-1].append(layer)
        else:
            parts.append([layer])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
