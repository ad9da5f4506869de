"""`quire stages plan`: choose the layers and mantissa bits that stage 1 omits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import Json, Plot, check_json, options
from quire.cli.stages.frontier import StageTrial, read_some, show_frontier
from quire.cli.stages.texts import Dtype, Generate, Model, Samples, Start, Text, Tokens, check_texts, gather_texts
from quire.cli.tables import print_table, write_figures
from quire.config import format_size
from quire.settings import Settings, parse_size, setting

if TYPE_CHECKING:
    from quire.loading import ModelSource
    from quire.progressive.angular_distance import AngularDistances
    from quire.progressive.frontier import FirstStage
    from quire.progressive.plans import ModelBytes
    from quire.progressive.questions import ReadingQuestion
    from quire.progressive.stage_plan import StagePlan

Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", callback=check_json, help="The plan file to write.")]
Questions = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Questions with answers, as --text: show the exact match of first stages."),
]
EXAMPLE = "Example: quire stages plan --model quire-mini --generate 64 --start Context: --layers-out 4"


@dataclass(frozen=True)
class PlanSettings(Settings):
    """The mantissa bits and layers that stage 1 omits, and the number of stages."""

    mantissa_bits: str | None = setting(
        None,
        "Bit planes: weights have N of 7 mantissa bits before the last stage; auto: as many as fit --bytes or --ttft, "
        "and with text one more in the layers that need it most.",
        metavar="N|auto",
        choices=("auto", *map(str, range(8))),
    )
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
        if self.mantissa_bits == "auto" and ways[:1] not in (["--bytes"], ["--ttft"]):
            raise ValueError("--mantissa-bits auto needs a limit: --bytes SIZE, or --ttft S and --bandwidth SIZE")
        if self.stages is not None and not ways:
            raise ValueError("--stages needs a choice of layers: --layers-out N, --bytes SIZE or --block START:END")
        if self.stages is not None and self.preset is not None:
            raise ValueError("a preset has its own stages; leave out --stages")

    def ways(self) -> list[str]:
        """Return the given options that choose layers."""
        values = {"layers-out": self.layers_out, "block": self.block, "bytes": self.bytes_, "ttft": self.ttft}
        return [f"--{name}" for name, value in (values | {"preset": self.preset}).items() if value is not None]

    def method(self, plan: StagePlan | None) -> str:
        """Return how a plan was made, for its file."""
        if plan is not None and plan.block_out is None:
            return "precision"
        return self.preset or ("by hand" if self.block is not None else self.baseline or "angular distance")

    @property
    def needs_text(self) -> bool:
        """Whether distances must be measured."""
        return self.baseline is None and self.block is None and self.preset is None and not self.is_by_precision

    @property
    def is_by_precision(self) -> bool:
        """Whether stage 1 has all layers."""
        return self.mantissa_bits == "auto" or (self.mantissa_bits is not None and not self.ways())


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
    out: Out = Path("plan.json"),
    questions: Questions = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Measure what omitted layers and mantissa bits change, and plan stage 1.

    A plan is written with --mantissa-bits, --layers-out, --bytes, --ttft, --block or --preset. Text is not needed with
    --block, --preset, --baseline, or --mantissa-bits alone or with a limit. With --plot or --questions, first stages
    are tried, and those that are best for their bytes printed.
    """
    from quire.loading import resolve_model
    from quire.progressive import plans

    text = text or ([questions] if questions is not None else None)
    has_text = bool(text) or generate > 0
    if has_text or start or settings.needs_text:
        check_texts(text, generate, start)
    elif plot is not None:
        raise ValueError("--plot draws measured distances; add --text FILE or --generate N")
    source = resolve_model(model)
    sizes, num_layers = plans.model_bytes(source), source.config.num_layers
    if num_layers < 2:
        raise ValueError(f"{model} has {num_layers} layer, and at least one must stay")
    stored = source.config.dtype or "float32"
    limit = _most_bytes(settings)
    given = _fixed_plan(num_layers, sizes, stored, settings, limit)
    asked = None if questions is None else read_some(questions, model, samples)
    measured, sources = None, list[str]()
    if has_text:
        texts, sources = gather_texts(model, text, generate, dtype=dtype, start=start, samples=samples, tokens=tokens)
        measured = _measure(source, dtype, texts, sizes, asked, plot is not None, given, limit)
        given = measured.plan
        _show(measured, sizes, stored)
    distances = None if measured is None else measured.distances
    if given is None and settings.ways():
        span = _choose_block(num_layers, sizes, stored, distances, settings, limit)
        given = plans.plan_block(num_layers, *span, settings.stages)
    if given is not None and settings.mantissa_bits not in (None, "auto"):
        given = replace(given, mantissa_bits=int(settings.mantissa_bits))
    facts: dict[str, Any] = {"model": model, "method": settings.method(given), "texts": sources}
    figures = {} if measured is None else measured.figures()
    gone = None if given is None else given.block_out
    if given is not None:
        if distances is not None and gone is not None:
            facts["distance"] = distances.of(*gone).distance
        plans.write_plan(given, out, **facts, stages=_show_plan(given, sizes, stored), distances=figures or None)
        typer.echo(f"\nwritten to {out}")
    write_figures(json, {**facts, "num_layers": num_layers, "plan": given.to_dict() if given else None, **figures})
    if plot is not None and measured is not None:
        _draw(plot, measured, sizes, model, gone)


@dataclass(frozen=True)
class _Measured:
    distances: AngularDistances
    precisions: tuple[float, ...]
    stages: list[FirstStage]
    is_exact_match: bool  #: whether questions were answered wrongly, in place of distances
    plan: StagePlan | None  #: the given one, perhaps with mantissa bits by layer

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "num_texts": self.distances.num_texts,
            "angular_distances": self.distances.values,
        }
        if self.precisions:
            found["precision_distances"] = self.precisions
        if self.stages:
            loss = "wrong" if self.is_exact_match else "distance"
            found["first_stages"] = [
                {loss if name == "loss" else name: value for name, value in vars(stage).items()}
                for stage in self.stages
            ]
        return found


def _show(measured: _Measured, sizes: ModelBytes, dtype: str) -> None:
    _show_distances(measured.distances, sizes)
    _show_precisions(measured.precisions, sizes, dtype)
    if measured.stages:
        show_frontier(measured.stages, sizes, measured.is_exact_match)


def _draw(plot: Path, measured: _Measured, sizes: ModelBytes, model: str, gone: tuple[int, int] | None) -> None:
    from quire.bench.plots import save_plot
    from quire.progressive.distance_plot import draw_distances
    from quire.progressive.frontier_plot import draw_frontier

    def draw(figure: Any) -> None:
        figure.set_size_inches(12, 4.8)
        figure.suptitle(f"First stages of {model}", x=0.01, ha="left")
        left, right = figure.subplots(1, 2)
        draw_frontier(left, measured.stages, sizes.total, measured.is_exact_match)
        draw_distances(right, measured.distances, gone)

    save_plot(plot, draw)


def _fixed_plan(num_layers: int, sizes: ModelBytes, dtype: str, settings: PlanSettings, limit: int) -> StagePlan | None:
    """Return the plan of --preset, --block or --mantissa-bits, if it needs no measurement."""
    from quire.progressive import plans
    from quire.progressive.precision import most_mantissa_bits

    if settings.layers_out is not None:
        plans.deepest_block(num_layers, settings.layers_out)  # refuse an impossible block before measuring
    if (given := settings.mantissa_bits) is not None and settings.is_by_precision:
        bits = most_mantissa_bits(dtype, sizes.total, limit) if given == "auto" else int(given)
        return plans.plan_precision(num_layers, bits)
    if settings.preset is not None:
        return plans.preset_plan(settings.preset, num_layers)
    if settings.block is None:
        return None
    start, colon, end = settings.block.partition(":")
    if not colon or not start.isdecimal() or not end.isdecimal():
        raise ValueError(f"--block {settings.block!r} is not START:END, such as 20:28 for the layers 20 to 27")
    return plans.plan_block(num_layers, int(start), int(end), settings.stages)


def _choose_block(
    num_layers: int,
    sizes: ModelBytes,
    dtype: str,
    distances: AngularDistances | None,
    settings: PlanSettings,
    limit: int,
) -> tuple[int, int]:
    """Return the block of the wanted number of layers, or the smallest that fits stage 1 into the wanted bytes."""
    from quire.progressive import plans
    from quire.progressive.precision import share_of_bytes

    blocks = {n: plans.deepest_block(num_layers, n) for n in range(1, num_layers)}
    if distances is not None and settings.baseline is None:
        blocks = {n: (best.start, best.end) for n in blocks if (best := distances.best(n))}
    if settings.layers_out is not None:
        return blocks[settings.layers_out]
    if settings.mantissa_bits is not None:
        limit = int(limit / share_of_bytes(dtype, int(settings.mantissa_bits)))
    return plans.block_that_fits(sizes, limit, blocks)


def _most_bytes(settings: PlanSettings) -> int:
    """Return the bytes that stage 1 may have by --bytes or --ttft, or 0."""
    from quire.progressive.plans import bytes_by

    if settings.ttft is None or settings.bandwidth is None:
        return settings.bytes_ or 0
    limit, rate = bytes_by(settings.ttft, settings.bandwidth, settings.allowance), format_size(settings.bandwidth)
    typer.echo(f"{format_size(limit)} arrive within {settings.ttft:g} s at {rate}/s, less {settings.allowance:g} s\n")
    return limit


def _measure(
    source: ModelSource,
    dtype: str,
    texts: list[list[int]],
    sizes: ModelBytes,
    asked: list[ReadingQuestion] | None,
    has_plot: bool,
    plan: StagePlan | None,
    limit: int,
) -> _Measured:
    from quire.cli.stages.texts import progress_bar
    from quire.loading import load_model
    from quire.loading.stage_manifest import WHOLE_BITS
    from quire.progressive.angular_distance import measure_distances
    from quire.progressive.precision import measure_precisions, spread_bits

    has_stages = source.config.dtype != "float16"
    loaded = load_model(source, dtype=dtype, use_tqdm=False)
    with progress_bar("measuring distances", (1 + WHOLE_BITS * has_stages) * len(texts)) as advance:
        distances = measure_distances(loaded, texts, advance)
        precisions = measure_precisions(loaded, texts, distances.last_states, advance) if has_stages else ()
    if plan is not None and limit:  # by precision
        with progress_bar("measuring a bit of each layer", len(texts)) as advance:
            plan = spread_bits(plan, loaded, texts, sizes, source.config.dtype or "float32", limit, advance)
    trial = StageTrial(sizes, source.config.dtype or "float32", distances, bool(precisions))
    stages: list[FirstStage] = []
    if asked is not None:
        del loaded  # before it is loaded again
        stages = trial.by_exact_match(source.name, dtype, asked)
    elif has_plot:
        stages = trial.by_distance(loaded, texts)
    return _Measured(distances, precisions, stages, asked is not None, plan)


def _show_precisions(distances: tuple[float, ...], sizes: ModelBytes, dtype: str) -> None:
    from quire.progressive.precision import share_of_bytes

    if distances:
        shares = [share_of_bytes(dtype, bits) for bits in range(len(distances))]
        rows = [
            (bits, f"{distance:.4f}", format_size(int(share * sizes.total)), f"{share:.0%}")
            for bits, (distance, share) in enumerate(zip(distances, shares, strict=True))
        ]
        print_table(("mantissa bits", "distance", "stage 1, about", "of all"), rows)
        typer.echo("\ndistances of the last layer's output from that with all 7 bits\n")


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


def _show_plan(plan: StagePlan, sizes: ModelBytes, dtype: str) -> list[dict[str, Any]]:
    """Print a plan's stages, and return them for the plan file."""
    from quire.loading.stage_manifest import WHOLE_BITS
    from quire.progressive.precision import share_of_bytes

    rows: list[dict[str, Any]] = []
    for number in range(1, plan.num_stages + 1):
        gone, is_rest = plan.layers_out(number), number > len(plan.groups)
        parts = [(None, sizes.others), *((i, size) for i, size in enumerate(sizes.layers) if i not in gone)]
        num_bytes = sum(size for _, size in parts)
        if plan.mantissa_bits is not None:
            bits = {layer: WHOLE_BITS if is_rest else plan.bits_of(layer) for layer, _ in parts}
            num_bytes = int(sum(size * share_of_bytes(dtype, bits[layer]) for layer, size in parts))
        rows.append({"stage": number, "num_layers": plan.num_layers - len(gone), "weight_bytes": num_bytes})
        added = "+ mantissas" if is_rest else f"+ {_span(plan.groups[number - 1])}"
        rows[-1]["layers"] = added if number > 1 else f"all but {_span(gone)}" if gone else "all"
    print_table(
        ("stage", "layers", "", "weights", "of all"),
        [
            (row["stage"], row["num_layers"], row["layers"], format_size(row["weight_bytes"]),
             f"{100 * row['weight_bytes'] / sizes.total:.1f} %")
            for row in rows
        ],
    )  # fmt: skip
    if plan.layer_bits:
        by_layer = " ".join(map(str, plan.layer_bits))
        typer.echo(f"\nmantissa bits by layer: {by_layer}; of embeddings and head: {plan.mantissa_bits}")
    return [{key: value for key, value in row.items() if key != "layers"} for row in rows]


def _span(layers: tuple[int, ...]) -> str:
    return str(layers[0]) if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
