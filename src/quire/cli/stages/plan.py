"""`quire stages plan`: which layers a model can do without at first, by what they change, by bytes or by hand."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import Json, Plot, check_json
from quire.cli.stages.texts import Dtype, Generate, Model, Samples, Start, Text, Tokens, check_texts, gather_texts
from quire.cli.tables import print_table, write_figures
from quire.config import format_size
from quire.settings import parse_size

if TYPE_CHECKING:
    from quire.progressive.angular_distance import AngularDistances
    from quire.progressive.plans import ModelBytes
    from quire.progressive.stage_plan import StagePlan

EXAMPLE = "Example: quire stages plan --model quire-mini --generate 64 --start Context: --layers-out 4"


class Baseline(Enum):
    DEEPEST = "deepest"


def plan(
    model: Model,
    text: Text = None,
    generate: Generate = 0,
    start: Start = "",
    layers_out: Annotated[int | None, typer.Option(min=1, help="Leave so many layers out at first.")] = None,
    block: Annotated[
        str | None, typer.Option(metavar="START:END", help="Leave these out: from 0, END excluded, as in 20:28.")
    ] = None,
    bytes_: Annotated[
        str | None, typer.Option("--bytes", help="Leave out as few as fit stage 1 into so many bytes, such as 500MB.")
    ] = None,
    ttft: Annotated[
        float | None, typer.Option(metavar="S", help="As --bytes: what arrives in so many seconds at --bandwidth.")
    ] = None,
    bandwidth: Annotated[str | None, typer.Option(help="With --ttft: bytes a second, such as 125MB.")] = None,
    allowance: Annotated[
        float, typer.Option(metavar="S", min=0, help="With --ttft: seconds of it in which no weights are awaited.")
    ] = 3.0,
    preset: Annotated[
        str | None, typer.Option(help="A published plan: progressiveserve (models of 32 layers).")
    ] = None,
    baseline: Annotated[
        Baseline | None, typer.Option(help="Not by distance: the deepest layers but the last one.")
    ] = None,
    stages: Annotated[
        int | None, typer.Option(min=2, help="The pruned model, the original, and those between. (default: 3)")
    ] = None,
    samples: Samples = 256,
    tokens: Tokens = 256,
    dtype: Dtype = "float32",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", callback=check_json, help="The plan's file.")
    ] = Path("plan.json"),
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure how little each block of layers turns what goes through it, and plan which one is left out at first.

    With --layers-out, --bytes, --ttft, --block or --preset the plan is written; without, the table is all. A plan by
    hand, by preset or by --baseline needs no text.
    """
    from quire.loading import resolve_model
    from quire.progressive import plans

    chosen = {"--layers-out": layers_out, "--block": block, "--bytes": bytes_, "--ttft": ttft, "--preset": preset}
    ways = [name for name, value in chosen.items() if value is not None]
    _check(ways, ttft, bandwidth, baseline, stages)
    needs_text = baseline is None and (not ways or ways[0] in ("--layers-out", "--bytes", "--ttft"))
    has_text = bool(text) or generate > 0
    if needs_text or has_text or start:
        check_texts(text, generate, start)
    elif plot is not None:
        raise ValueError("--plot draws distances; give --text FILE or --generate N to measure them on")
    source = resolve_model(model)
    sizes = plans.model_bytes(source)
    num_layers = source.config.num_layers
    if num_layers < 2:
        raise ValueError(f"{model} has {num_layers} layer; there is nothing to leave out")
    given = _fixed_plan(num_layers, block, preset, stages) if block is not None or preset is not None else None
    if layers_out is not None:
        plans.deepest_block(num_layers, layers_out)  # whether there can be such a block shows before measuring
    distances: AngularDistances | None = None
    sources: list[str] = []
    if has_text:
        distances, sources = _measure(model, dtype, text, generate, start, samples, tokens)
        _show_distances(distances, sizes)
    if given is None and ways:
        blocks = {n: plans.deepest_block(num_layers, n) for n in range(1, num_layers)}
        if baseline is None:
            assert distances is not None
            blocks = {n: (best.start, best.end) for n in blocks if (best := distances.best(n))}
        if layers_out is not None:
            span = blocks[layers_out]
        else:
            limit = parse_size(bytes_) if bytes_ is not None else _arriving(ttft, bandwidth, allowance)
            span = plans.block_that_fits(sizes, limit, blocks)
        given = plans.plan_block(num_layers, *span, stages)
    facts: dict[str, Any] = {
        "model": model,
        "method": preset or ("by hand" if block is not None else baseline.value if baseline else "angular distance"),
        "texts": sources,
    }
    if given is not None:
        gone = given.layers_out(1)
        if distances is not None:
            facts["distance"] = distances.of(gone[0], gone[-1] + 1).distance
        rows = _show_plan(given, sizes)
        plans.write_plan(given, out, **facts, stages=rows, distances=_as_dict(distances))
        typer.echo(f"\nwritten to {out}")
    write_figures(
        json,
        {**facts, "num_layers": num_layers, "plan": given.to_dict() if given else None, **(_as_dict(distances) or {})},
    )
    if plot is not None and distances is not None:
        from quire.bench.plots import save_plot
        from quire.progressive.distance_plot import draw_distances

        span_out = (given.layers_out(1)[0], given.layers_out(1)[-1] + 1) if given else None
        save_plot(plot, lambda figure: draw_distances(figure, distances, model, span_out))


def _check(
    ways: list[str], ttft: float | None, bandwidth: str | None, baseline: Baseline | None, stages: int | None
) -> None:
    if len(ways) > 1:
        raise ValueError(f"{' and '.join(ways)} each choose the layers; give one of them")
    if (ttft is None) != (bandwidth is None):
        raise ValueError("--ttft and --bandwidth belong together: seconds, and bytes a second such as 125MB")
    if baseline is not None and (not ways or ways[0] in ("--block", "--preset")):
        raise ValueError("--baseline chooses a block of some size; give --layers-out, --bytes or --ttft, too")
    if stages is not None and not ways:
        raise ValueError(
            "--stages is about a plan; say which layers: --layers-out N, --bytes SIZE or --block START:END"
        )
    if stages is not None and "--preset" in ways:
        raise ValueError("a preset has its own stages; leave out --stages")


def _fixed_plan(num_layers: int, block: str | None, preset: str | None, stages: int | None) -> StagePlan:
    from quire.progressive import plans

    if preset is not None:
        return plans.preset_plan(preset, num_layers)
    assert block is not None
    start, colon, end = block.partition(":")
    if not colon or not start.isdecimal() or not end.isdecimal():
        raise ValueError(f"--block {block!r} is not START:END, such as 20:28 for the layers 20 to 27")
    return plans.plan_block(num_layers, int(start), int(end), stages)


def _arriving(ttft: float | None, bandwidth: str | None, allowance: float) -> int:
    from quire.progressive.plans import bytes_by

    assert ttft is not None
    assert bandwidth is not None
    limit = bytes_by(ttft, parse_size(bandwidth), allowance)
    typer.echo(f"{format_size(limit)} arrive in {ttft:g} s at {bandwidth} a second, but for {allowance:g} s\n")
    return limit


def _measure(
    model: str, dtype: str, text: list[Path] | None, generate: int, start: str, samples: int, tokens: int
) -> tuple[AngularDistances, list[str]]:
    from quire.cli.stages.texts import progress_bar
    from quire.progressive.angular_distance import measure_distances
    from quire.progressive.calibration_text import batches
    from quire.progressive.reference import load_reference

    reference, tokenizer = load_reference(model, dtype)
    texts, sources = gather_texts(reference, tokenizer, text, generate, start=start, samples=samples, tokens=tokens)
    with progress_bar("measuring distances", len(texts)) as advance:
        return measure_distances(reference, batches(texts), advance), sources


def _show_distances(distances: AngularDistances, sizes: ModelBytes) -> None:
    from quire.progressive.plans import deepest_block

    rows = []
    for size in range(1, distances.num_layers):
        best, deepest = distances.best(size), distances.of(*deepest_block(distances.num_layers, size))
        rows.append(
            (
                size,
                f"{best.start}:{best.end}",
                f"{best.distance:.4f}",
                f"{deepest.start}:{deepest.end}",
                f"{deepest.distance:.4f}",
                format_size(sizes.without(best.start, best.end)),
            )
        )
    print_table(("layers out", "best block", "distance", "deepest but last", "distance", "stage 1"), rows)
    typer.echo(f"\nangular distances over {distances.num_texts} texts: 0 is the same direction, 0.5 orthogonal\n")


def _show_plan(plan: StagePlan, sizes: ModelBytes) -> list[dict[str, Any]]:
    """Print its stages, and return them for the file."""
    rows: list[dict[str, Any]] = []
    for number in range(1, plan.num_stages + 1):
        gone, added = plan.layers_out(number), plan.groups[number - 1]
        num_bytes = sizes.total - sum(sizes.layers[i] for i in gone)
        rows.append({"stage": number, "num_layers": plan.num_layers - len(gone), "weight_bytes": num_bytes})
        rows[-1]["layers"] = f"all but {_span(gone)}" if number == 1 else f"+ {_span(added)}"
    print_table(
        ("stage", "layers", "", "weights", "of all"),
        [
            (row["stage"], row["num_layers"], row["layers"], format_size(row["weight_bytes"]),
             f"{100 * row['weight_bytes'] / sizes.total:.1f} %")
            for row in rows
        ],
    )  # fmt: skip
    return [{key: value for key, value in row.items() if key != "layers"} for row in rows]


def _span(layers: tuple[int, ...]) -> str:
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"


def _as_dict(distances: AngularDistances | None) -> dict[str, Any] | None:
    if distances is None:
        return None
    return {"num_texts": distances.num_texts, "angular_distances": distances.values}
