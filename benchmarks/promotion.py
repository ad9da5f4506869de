"""Inter-token latency of running streams during promotion, for each promotion policy.

All policies get the same arrivals. Stages arrive at fixed shares of the generated tokens, in the middle of a run.
Waiting beyond recomputation is counted in steps that recomputed nothing.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import typer

from benchmarks.script import start
from quire.assembly import LoadedModel, load, make_engine
from quire.bench.bench_settings import runs
from quire.bench.plots import PlotRow, draw_rows
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import poisson_arrivals
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.loading.layer_loader import BACKGROUND_SHARE
from quire.loading.stage_manifest import LayerGroup, Stage, StageManifest
from quire.models.base import CausalLM
from quire.models.stages import PassLayer, ServableStage
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.settings import Settings, setting
from quire.system.background_throttle import BackgroundThrottle

POLICIES = ("cost", "pin", "recompute")
_MOST_STEPS = 2  #: target: steps that a stream waits beyond recomputation


@dataclass(frozen=True)
class PromotionSettings(Settings):
    """Options of the promotion benchmark."""

    num_requests: int = setting(16, "Streams.", at_least=1)
    input_len: int = setting(128, "Tokens of each prompt.", at_least=1)
    output_len: int = setting(64, "Tokens of each answer.", at_least=2)
    rate: float = setting(
        0.0, "Requests per second (Poisson); 0 is twice the rate at which the engine answers all at once.", at_least=0
    )
    layers_out: int = setting(8, "Layers missing in stage 1 of a model without a pack.", at_least=1)
    stages: int = setting(3, "Stages of a model without a pack.", at_least=2)
    seed: int = setting(0, "Seed of prompts and arrivals.", name="load_seed")
    runs: int = runs()


class StageSource(Protocol):
    """Source of stages: a loader, or the layers of a loaded model."""

    last_stage: int
    num_stages: int

    def stage(self, number: int) -> ServableStage: ...


class HeldStages:
    """Stages in memory that arrive when the benchmark releases them (`engine.promotion.Arrivals`)."""

    def __init__(self, source: StageSource) -> None:
        self.last_stage = source.last_stage
        self.num_stages = source.num_stages
        self.stage = source.stage
        self.stage_ready = 1
        self.on_stage: Callable[[int], None] | None = None
        self.throttle = BackgroundThrottle(BACKGROUND_SHARE)  # unused

    def set_served_stage(self, number: int) -> None:
        pass


class LayersOut:
    """Stages of a model without a pack: a block of layers is left out at first and returns in equal groups."""

    def __init__(self, model: CausalLM, layers_out: int, num_stages: int) -> None:
        last = model.config.num_layers - 1
        if not num_stages - 1 <= layers_out < last:
            raise ValueError(
                f"{layers_out} layers out in {num_stages} stages does not go with {last + 1} layers; the first and the "
                "last stay, and each later stage brings one at least"
            )
        first = last - layers_out
        ends = [first + layers_out * at // (num_stages - 1) for at in range(num_stages)]
        self.last_stage = self.num_stages = num_stages
        self._layers = list(model.layers)
        self.in_place = [(*range(end), *range(last, last + 1)) for end in ends[:-1]] + [tuple(range(last + 1))]

    def stage(self, number: int) -> ServableStage:
        in_place = self.in_place[number - 1]
        return ServableStage(number, [x if at in in_place else PassLayer() for at, x in enumerate(self._layers)])

    def manifest(self, model: CausalLM) -> StageManifest:
        stages = tuple(Stage(number, layers) for number, layers in enumerate(self.in_place, start=1))
        groups = tuple(LayerGroup("", layers) for layers in self.in_place)
        config = model.config
        return StageManifest(Path(), config.architecture, config.num_layers, "", "", groups, stages, {})


@dataclass
class Stream:
    """A request, and the steps that brought its tokens."""

    state: RequestState
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """Measurements of one run."""

    num_failed: int
    num_pinned: int
    num_recomputed: int
    most_steps: int  #: that a stream waited beyond those that computed something again
    longest_gap_s: float
    recompute_s: float  #: of steps that computed something again
    tpot_s: list[float]
    ttft_s: list[float]
    wall_s: float


def play(engine: Engine, held: HeldStages, settings: PromotionSettings, due_s: Sequence[float]) -> Played:
    """Send each request at its due time, and release stages meanwhile."""
    prompts = [_prompt(engine, settings, at) for at in range(len(due_s))]
    params = SamplingParams(temperature=0.0, max_tokens=settings.output_len, ignore_eos=True, detokenize=False)
    total, made = len(due_s) * settings.output_len, 0
    shares = [(at + 1) / (held.last_stage + 1) / 3 + 1 / 3 for at in range(held.last_stage - 1)]
    streams: dict[str, Stream] = {}
    repeating: dict[int, float] = {}  # steps that computed something again, and their seconds
    num_pinned = 0
    started = engine.clock()
    while len(streams) < len(due_s) or engine.has_unfinished():
        now = engine.clock() - started
        while len(streams) < len(due_s) and due_s[len(streams)] <= now:
            accepted = engine.input_processor.accept(Prompt(token_ids=prompts[len(streams)]), params)
            state = engine.add(accepted, arrival_time=started + due_s[len(streams)])
            streams[state.request.request_id] = Stream(state)
        if not engine.has_unfinished():
            time.sleep(max(0.0, due_s[len(streams)] - now))
            continue
        stage = engine.stage
        held.stage_ready = 1 + sum(made >= share * total for share in shares)
        before = engine.scheduler.counts.recomputed_tokens
        begun = engine.clock()
        changed = engine.step()
        if engine.stage != stage:
            num_pinned += sum(request.stage != engine.stage for request in engine.scheduler.queue.running)
        step = engine.scheduler.num_steps
        if engine.scheduler.counts.recomputed_tokens > before:
            repeating[step] = engine.clock() - begun
        for state in changed:
            stream = streams[state.request.request_id]
            made += 1
            stream.steps.append(step)
            stream.times.append(engine.clock())
    return _measured(list(streams.values()), repeating, num_pinned, engine.clock() - started)


def _prompt(engine: Engine, settings: PromotionSettings, at: int) -> list[int]:
    rng = random.Random(f"{settings.seed}/{at}")
    return [rng.randrange(engine.vocab_size) for _ in range(settings.input_len)]


def _measured(streams: Sequence[Stream], repeating: dict[int, float], num_pinned: int, wall_s: float) -> Played:
    waits = [
        sum(1 for step in range(a + 1, b) if step not in repeating)
        for stream in streams
        for a, b in pairwise(stream.steps)
    ]
    gaps = [gap for stream in streams for gap in _gaps(stream.times)]
    return Played(
        num_failed=sum(stream.state.request.error is not None for stream in streams),
        num_pinned=num_pinned,
        num_recomputed=sum(stream.state.request.num_promotions for stream in streams),
        most_steps=max(waits, default=0),
        longest_gap_s=max(gaps, default=0.0),
        recompute_s=sum(repeating.values()),
        tpot_s=[statistics.mean(_gaps(stream.times)) for stream in streams if len(stream.times) > 1],
        ttft_s=[stream.times[0] - stream.state.metrics.arrival_time for stream in streams if stream.times],
        wall_s=wall_s,
    )


def _gaps(times: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


def run(
    config: EngineConfig,
    settings: PromotionSettings,
    json_path: Path | None = None,
    plot_path: Path | None = None,
) -> bool:
    """`quire bench promotion`.

    Returns:
        Whether no request failed, and none waited longer than it may.
    """
    loaded = load(config)
    source, manifest = _stages_of(loaded, settings)
    played: dict[str, list[Played]] = {policy: [] for policy in ("none", *POLICIES)}
    rate = settings.rate or _measure_rate(config, loaded, source, manifest, settings)
    due_s = poisson_arrivals(settings.num_requests, rate, settings.seed)
    for _ in range(settings.runs):
        for policy in played:
            held = HeldStages(source)
            if policy == "none":
                held.last_stage = 1
            engine = _make_engine(config, loaded, held, manifest, "cost" if policy == "none" else policy)
            played[policy].append(play(engine, held, settings, due_s))
    report = make_report(config, settings, rate, source.last_stage, played)
    report.publish(json_path, plot_path, lambda figure: draw(figure, report.title, played))
    runs = [each for of_policy in played.values() for each in of_policy]
    return not any(each.num_failed or each.most_steps > _MOST_STEPS for each in runs)


def _stages_of(loaded: LoadedModel, settings: PromotionSettings) -> tuple[StageSource, StageManifest]:
    if loaded.manifest is not None and loaded.arrivals is not None:
        loaded.arrivals.stage(loaded.arrivals.last_stage)  # waits for it
        return loaded.arrivals, loaded.manifest
    made_up = LayersOut(loaded.model, settings.layers_out, settings.stages)
    return made_up, made_up.manifest(loaded.model)


def _make_engine(
    config: EngineConfig, loaded: LoadedModel, held: HeldStages, manifest: StageManifest, policy: str
) -> Engine:
    staged = replace(loaded, manifest=manifest, arrivals=held)
    return make_engine(replace(config, promotion_policy=policy), staged)


def _measure_rate(
    config: EngineConfig,
    loaded: LoadedModel,
    source: StageSource,
    manifest: StageManifest,
    settings: PromotionSettings,
) -> float:
    held = HeldStages(source)
    held.last_stage = 1
    engine = _make_engine(config, loaded, held, manifest, "recompute")
    return 2 * settings.num_requests / play(engine, held, settings, [0.0] * settings.num_requests).wall_s


COLUMNS = (
    Column("policy", "promotion"),
    Column("num_failed", "failed", digits=0),
    Column("num_pinned", "pinned", digits=0),
    Column("num_recomputed", "computed again", digits=0),
    Column("most_steps", "steps waited beyond", digits=0),
    Column("longest_gap_s", "longest gap ms", scale=1e3, digits=0),
    Column("recompute_s", "computing again ms", scale=1e3, digits=0),
    Column("ttft_s", "TTFT ms", scale=1e3, digits=0),
    Column("tpot_s", "TPOT ms", scale=1e3, digits=1),
    Column("wall_s", "wall s"),
)


def make_report(
    config: EngineConfig, settings: PromotionSettings, rate: float, num_stages: int, played: dict[str, list[Played]]
) -> Report:
    report = Report(
        "promotion",
        f"Promotion under load: {config.model}, {num_stages} stages, {settings.num_requests} streams of "
        f"{settings.input_len} + {settings.output_len} tokens, {rate:.1f} a second",
        COLUMNS,
        [_figure(policy, runs) for policy, runs in played.items()],
    )
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    report.more = {"request_rate": rate}
    worst = max(each.most_steps for runs in played.values() for each in runs)
    report.notes.append(
        f"Beside steps that computed something again, a stream waited for {worst} steps between two tokens at most; "
        f"{_MOST_STEPS} are allowed. Without promotion (none) all stays at stage 1, which is faster than the stages "
        "that follow."
    )
    return report


def _figure(policy: str, runs: Sequence[Played]) -> dict[str, Any]:
    figure: dict[str, Any] = {"policy": policy}
    for name in ("num_failed", "num_pinned", "num_recomputed", "most_steps", "longest_gap_s", "recompute_s", "wall_s"):
        figure[name] = summarise(getattr(each, name) for each in runs)
    for name in ("ttft_s", "tpot_s"):
        figure[name] = summarise(statistics.mean(getattr(each, name)) for each in runs if getattr(each, name))
    return figure


def draw(figure: Any, title: str, played: dict[str, list[Played]]) -> None:
    """The longest gap between two tokens of any stream, by policy."""
    panel = figure.subplots(1, 1)
    figure.suptitle(f"The longest gap between two tokens of a stream: less is better\n{title}", x=0.01, ha="left")
    rows = []
    for policy, done in played.items():
        gaps = [each.longest_gap_s for each in done]
        rows.append(PlotRow(policy, statistics.median(gaps), points=gaps))
    draw_rows(panel, rows, "s (the median run, and each one)")
    panel.set_xlim(left=0)


@options()
def main(engine: EngineConfig, settings: PromotionSettings, json: Json = None, plot: Plot = None) -> None:
    """Inter-token latency of running streams during promotion, for each promotion policy."""
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
