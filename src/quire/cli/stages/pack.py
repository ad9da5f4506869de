"""`quire stages pack`, `verify`, `unpack` and `show`: a model in stages as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.options import Json
from quire.cli.tables import print_table, write_figures
from quire.config import format_size

PACK_EXAMPLE = "Example: quire stages pack --model quire-mini --plan plan.json --adapter 1=healed --out mini-pack"
VERIFY_EXAMPLE = "Example: quire stages verify mini-pack"
UNPACK_EXAMPLE = "Example: quire stages unpack mini-pack mini"
SHOW_EXAMPLE = "Example: quire stages show mini-pack"

Pack = Annotated[Path, typer.Argument(metavar="DIR", help="The pack's directory.")]
Progress = Annotated[bool, typer.Option("--progress/--no-progress", help="Show how far it is.")]


def pack(
    model: Annotated[str, typer.Option(help="A directory, a hub id or an embedded model.")],
    plan: Annotated[Path, typer.Option(help="As quire stages plan writes it.")],
    out: Annotated[Path, typer.Option(help="The directory to make.")],
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="STAGE=DIR", help="A stage's adapter, as PEFT saves it; several times.")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="STAGE=FILE", help="The map in a stage's gap, of quire stages map; several times."
        ),
    ] = None,
    progress: Progress = True,
) -> None:
    """Write a model as a pack: a checkpoint in one file a stage, with its adapters, which answers before it is loaded.

    transformers and all else load a pack as the original.
    """
    from quire.loading.source import read_json_object
    from quire.progressive.pack import pack as write
    from quire.progressive.stage_plan import StagePlan

    facts = read_json_object(plan)
    stages = StagePlan.from_dict(facts)
    manifest = write(
        model,
        stages,
        out,
        adapters=_by_stage(adapter or (), "--adapter"),
        maps=_by_stage(map_ or (), "--map"),
        origin=facts,
        use_tqdm=progress,
    )
    size = sum(file.num_bytes for file in manifest.files.values())
    first = manifest.stage_bytes(1) / manifest.stage_bytes(len(manifest.stages))
    typer.echo(f"{out}: {len(manifest.stages)} stages, {format_size(size)}; stage 1 has {first:.1%} of the weights")


def verify(directory: Pack, progress: Progress = True) -> None:
    """Read and check all of a pack. Ends with status 1 where a file is broken, and names it."""
    from quire.loading.progress import bytes_progress
    from quire.progressive.verify import verify as check

    total = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    with bytes_progress("Checking", 2 * total, progress) as advance:
        problems = check(directory, advance)
    for problem in problems:
        typer.secho(problem, fg=typer.colors.RED, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{directory} is whole")


def unpack(
    directory: Pack,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to make.")],
    progress: Progress = True,
) -> None:
    """Write the original model of a pack as an ordinary checkpoint, without stages and adapters."""
    from quire.progressive.pack import unpack as write

    typer.echo(f"{out}: {write(directory, out, use_tqdm=progress)}")


def show(directory: Pack, json: Json = None) -> None:
    """The stages of a pack: their layers, their bytes, and what stands in for layers that are not there yet."""
    from quire.loading.stage_manifest import read_stage_manifest

    manifest = read_stage_manifest(directory)
    whole = manifest.stage_bytes(len(manifest.stages))
    rows = []
    for stage, group in zip(manifest.stages, manifest.groups, strict=True):
        num_bytes = manifest.stage_bytes(stage.number)
        rows.append(
            {
                "stage": stage.number,
                "layers": _ranges(stage.layers),
                "adds": _ranges(group.layers),
                "num_bytes": num_bytes,
                "share": num_bytes / whole,
                "adapter": stage.adapter,
                "map": stage.linear_map,
            }
        )
    print_table(
        ("stage", "layers", "adds", "weights", "of all", "adapter", "map"),
        [
            (
                row["stage"],
                row["layers"],
                row["adds"],
                format_size(manifest.stage_bytes(stage.number)),
                f"{row['share']:.1%}",
                row["adapter"] or "none",
                row["map"] or "none",
            )
            for row, stage in zip(rows, manifest.stages, strict=True)
        ],
    )
    typer.echo(f"\n{manifest.architecture}, {manifest.num_layers} layers, {manifest.dtype}, {manifest.weights}")
    write_figures(json, {"weights": manifest.weights, "num_layers": manifest.num_layers, "stages": rows})


def _by_stage(values: Sequence[str], option: str) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for value in values:
        stage, _, path = value.partition("=")
        if not stage.isdecimal() or not path:
            raise ValueError(f"{option} {value}: expected a stage and a path, such as 1=healed")
        if int(stage) in found:
            raise ValueError(f"{option} is given twice for stage {stage}")
        found[int(stage)] = Path(path)
    return found


def _ranges(layers: Sequence[int]) -> str:
    """[0, 1, 2, 7] -> "0-2, 7"."""
    parts: list[list[int]] = []
    for layer in layers:
        if parts and parts[-1][-1] == layer - 1:
            parts[-1].append(layer)
        else:
            parts.append([layer])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
