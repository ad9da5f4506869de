"""`quire stages plan`: choose the layers that stage 1 omits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import Json, Plot, check_json, options
from quire.cli.stages.texts import Dtype, Generate, Model, Samples, Start, Text, Tokens, check_texts, gather_texts
from quire.cli.tables import print_table, write_figures
from quire.config import format_size
from quire.settings import Settings, parse_size, setting

if TYPE_CHECKING:
    from quire.progressive.angular_distance import AngularDistances
    from quire.progressive.plans import ModelBytes
    from quire.progressive.stage_plan import StagePlan

EXAMPLE = "Example: quire stages plan --model quire-mini --generate 64 --start Context: --layers-out 4"


@dataclass(frozen=True)
class PlanSettings(Settings):
    """The layers that stage 1 omits, and the number of stages."""

    layers_out: int | None = setting(None, "Omit a block of N layers.", at_least=1)
    block: str | None = setting(None, "Omit these layers; END is excluded, as in 20:28.", metavar="START:END")
    bytes_: int | None = setting(
        None,
        "Omit the fewest layers that fit stage 1 into this size, such as 500MB.",
        name="bytes",
        read=parse_size,
        at_least=1,
    )
    ttft: float | None = setting(
        None, "As --bytes, with the bytes that arrive within S seconds at --bandwidth.", metavar="S"
    )
    bandwidth: int | None = setting(None, "With --ttft: bytes per second, such as 125MB.", read=parse_size, at_least=1)
    allowance: float = setting(3.0, "With --ttft: seconds spent on other work than loading.", metavar="S", at_least=0)
    preset: str | None = setting(None, "A published plan: progressiveserve (models of 32 layers).")
    baseline: str | None = setting(
        None, "Choose the deepest layers but the last, instead of by distance.", choices=("deepest",)
    )
    stages: int | None = setting(None, "Number of stages, the original included. (default: 3)", at_least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        ways = self.ways()
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} exclude each other; give one of them")
        if (self.ttft is None) != (self.bandwidth is None):
            raise ValueError("--ttft (seconds) and --bandwidth (bytes per second, such as 125MB) need each other")
        if self.baseline is not None and ways[:1] in ([], ["--block"], ["--preset"]):
            raise ValueError("--baseline needs --layers-out, --bytes or --ttft")
        if self.stages is not None and not ways:
            raise ValueError("--stages needs a choice of layers: --layers-out N, --bytes SIZE or --block START:END")
        if self.stages is not None and self.preset is not None:
            raise ValueError("a preset has its own stages; leave out --stages")

    def ways(self) -> list[str]:
        """Return the given options that choose layers."""
        values = {"layers-out": self.layers_out, "block": self.block, "bytes": self.bytes_, "ttft": self.ttft}
        return [f"--{name}" for name, value in (values | {"preset": self.preset}).items() if value is not None]

    @property
    def needs_text(self) -> bool:
        """Whether distances must be measured."""
        return self.baseline is None and self.block is None and self.preset is None


@options()
def plan(
    settings: PlanSettings,
    model: Model,
    text: Text = None,
    generate: Generate = 0,
    start: Start = "",
    samples: Samples = 256,
    tokens: Tokens = 256,
    dtype: Dtype = "float32",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", callback=check_json, help="The plan file to write.")
    ] = Path("plan.json"),
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure the angular distance of each block of layers, and plan the one that stage 1 omits.

    A plan is written with --layers-out, --bytes, --ttft, --block or --preset. Text is not needed with --block, --preset
    or --baseline.
    """
    from quire.loading import resolve_model
    from quire.progressive import plans

    has_text = bool(text) or generate > 0
    if has_text or start or settings.needs_text:
        check_texts(text, generate, start)
    elif plot is not None:
        raise ValueError("--plot draws measured distances; add --text FILE or --generate N")
    source = resolve_model(model)
    sizes, num_layers = plans.model_bytes(source), source.config.num_layers
    if num_layers < 2:
        raise ValueError(f"{model} has {num_layers} layer, and at least one must stay")
    given = _fixed_plan(num_layers, settings)
    if settings.layers_out is not None:
        plans.deepest_block(num_layers, settings.layers_out)  # refuse an impossible block before measuring
    distances: AngularDistances | None = None
    sources: list[str] = []
    if has_text:
        distances, sources = _measure(model, dtype, text, generate, start, samples, tokens)
        _show_distances(distances, sizes)
    if given is None and settings.ways():
        span = _choose_block(num_layers, sizes, distances, settings)
        given = plans.plan_block(num_layers, *span, settings.stages)
    method = settings.preset or ("by hand" if settings.block is not None else settings.baseline or "angular distance")
    facts: dict[str, Any] = {"model": model, "method": method, "texts": sources}
    measured = {} if distances is None else {"num_texts": distances.num_texts, "angular_distances": distances.values}
    gone = (given.layers_out(1)[0], given.layers_out(1)[-1] + 1) if given is not None else None
    if given is not None and gone is not None:
        if distances is not None:
            facts["distance"] = distances.of(*gone).distance
        plans.write_plan(given, out, **facts, stages=_show_plan(given, sizes), distances=measured or None)
        typer.echo(f"\nwritten to {out}")
    write_figures(json, {**facts, "num_layers": num_layers, "plan": given.to_dict() if given else None, **measured})
    if plot is not None and distances is not None:
        from quire.bench.plots import save_plot
        from quire.progressive.distance_plot import draw_distances

        save_plot(plot, lambda figure: draw_distances(figure, distances, model, gone))


def _fixed_plan(num_layers: int, settings: PlanSettings) -> StagePlan | None:
    """Return the plan of --preset or --block."""
    from quire.progressive import plans

    if settings.preset is not None:
        return plans.preset_plan(settings.preset, num_layers)
    if settings.block is None:
        return None
    start, colon, end = settings.block.partition(":")
    if not colon or not start.isdecimal() or not end.isdecimal():
        raise ValueError(f"--block {settings.block!r} is not START:END, such as 20:28 for the layers 20 to 27")
    return plans.plan_block(num_layers, int(start), int(end), settings.stages)


def _choose_block(
    num_layers: int, sizes: ModelBytes, distances: AngularDistances | None, settings: PlanSettings
) -> tuple[int, int]:
    """Return the block of the wanted number of layers, or the smallest that fits stage 1 into the wanted bytes."""
    from quire.progressive import plans

    blocks = {n: plans.deepest_block(num_layers, n) for n in range(1, num_layers)}
    if distances is not None and settings.baseline is None:
        blocks = {n: (best.start, best.end) for n in blocks if (best := distances.best(n))}
    if settings.layers_out is not None:
        return blocks[settings.layers_out]
    limit = settings.bytes_
    if settings.ttft is not None and settings.bandwidth is not None:
        limit = plans.bytes_by(settings.ttft, settings.bandwidth, settings.allowance)
        rate = format_size(settings.bandwidth)
        typer.echo(
            f"{format_size(limit)} arrive within {settings.ttft:g} s at {rate}/s, less {settings.allowance:g} s\n"
        )
    assert limit is not None
    return plans.block_that_fits(sizes, limit, blocks)


def _measure(
    model: str, dtype: str, text: list[Path] | None, generate: int, start: str, samples: int, tokens: int
) -> tuple[AngularDistances, list[str]]:
    from quire.cli.stages.texts import progress_bar
    from quire.loading import load_model, resolve_model
    from quire.progressive.angular_distance import measure_distances

    texts, sources = gather_texts(model, text, generate, dtype=dtype, start=start, samples=samples, tokens=tokens)
    loaded = load_model(resolve_model(model), dtype=dtype, use_tqdm=False)
    with progress_bar("measuring distances", len(texts)) as advance:
        return measure_distances(loaded, texts, advance), sources


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
    """Print a plan's stages, and return them for the plan file."""
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
