"""Cold starts of ProgressiveServe's comparison: `quire bench coldstart` beside transformers, against targets.

The targets: leaving bytes out gains 95 % of the time that they take to read; the full model comes at most 5 % later
than at once; running streams slow down by at most 10 % while the rest of the model loads.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import patch

from benchmarks.coldstart.picture import draw
from benchmarks.coldstart.quality import draw_quality, read_quality
from benchmarks.coldstart.running import StreamCost, run_alone, run_while_loading
from benchmarks.coldstart.serverless_llm import convert
from benchmarks.coldstart.transformers_start import start_transformers
from quire.bench.bench_settings import ColdStartSettings, paths
from quire.bench.coldstart.cold_server import make_prompt
from quire.bench.coldstart.cold_start_report import make_report
from quire.bench.coldstart.coldstart import ColdStart, ColdStartBench, WeightSizes, describe_bandwidth
from quire.bench.report import Column, Report, summarise
from quire.config import EngineConfig
from quire.settings import names, setting

_GAIN_SHARE = 0.95
_MOST_FULL = 1.05
_MOST_TPOT = 1.10
_SERVERLESS_LLM = (sys.executable, "-c", "from benchmarks.coldstart.serverless_llm import main; main()", "serve")


@dataclass(frozen=True)
class ComparisonSettings(ColdStartSettings):
    """Options of the cold start comparison."""

    known_modes: ClassVar[tuple[str, ...]] = ("transformers", "serverlessllm", *ColdStartSettings.known_modes)
    modes: tuple[str, ...] = setting(
        ",".join(name for name in known_modes if name != "serverlessllm"),
        "Loading modes: transformers (only without a bandwidth), serverlessllm (its loader in Quire's server), "
        "at-once, overlap, staged (each pack).",
        read=names,
        metavar="MODE[,MODE...]",
    )
    quality: tuple[Path, ...] = setting(
        (),
        "Outputs of benchmarks.stage_quality --json, one for each pack: the plot then shows exact match over time.",
        read=paths,
        metavar="FILE[,FILE...]",
    )
    running: int = setting(0, "Streams that run while the pack loads, to measure their slowdown.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.running and len(self.pack) != 1:
            raise ValueError("streams beside loading need stages; give --pack with one pack")
        if self.quality and len(self.quality) != len(self.pack):
            raise ValueError("--quality needs a file for each pack")


class Comparison(ColdStartBench):
    """Cold starts with transformers as one of the modes."""

    settings: ComparisonSettings

    def __init__(self, config: EngineConfig, settings: ComparisonSettings) -> None:
        super().__init__(config, settings)
        if "serverlessllm" in settings.modes:
            self._folder = TemporaryDirectory(prefix="serverlessllm-", dir=Path.cwd())  # /tmp may be other storage
            self.converted = Path(self._folder.name) / "model"
            convert(self.directory, self.converted)

    def start(self, mode: str, bandwidth: float) -> ColdStart:
        if mode == "serverlessllm":
            with patch("quire.bench.coldstart.cold_server.SERVE", _SERVERLESS_LLM):
                return super().start(mode, bandwidth)
        if mode != "transformers":
            return super().start(mode, bandwidth)
        config, prompt = self.config, make_prompt(self.settings.prompt_len)
        resident = self.drop_files(self.directory)
        other = start_transformers(str(self.directory), prompt, dtype=config.dtype, num_threads=config.num_threads)
        return ColdStart(mode, bandwidth, other.ttft_s, other.full_s, other.phases, resident)

    def server_options(self, mode: str, bandwidth: float) -> tuple[EngineConfig, list[str]]:
        config, options = super().server_options(mode, bandwidth)
        return (replace(config, model=str(self.converted)) if mode == "serverlessllm" else config), options

    def can_start(self, mode: str, bandwidth: float) -> bool:
        """The reads of transformers cannot be limited."""
        return super().can_start(mode, bandwidth) and (mode != "transformers" or bandwidth == math.inf)

    def measure_running(self) -> list[StreamCost]:
        """Streams while the pack loads, and on its first stage without loading."""
        (pack,) = self.packs
        number, length = self.settings.running, self.settings.prompt_len
        found = []
        for _ in range(self.settings.runs):
            for bandwidth in self.settings.storage_bandwidth:
                config, options = self.server_options(pack, bandwidth)
                self.drop_files(self.packs[pack].directory)
                tpot_s, full_s = run_while_loading(config, options, number, length)
                found.append(StreamCost(number, bandwidth, tpot_s, run_alone(config, number, length), full_s))
        return found


def run(config: EngineConfig, settings: ComparisonSettings, json: Path | None, plot: Path | None) -> None:
    """Measure and publish the table.

    Raises:
        ValueError: the model is not on this disk, or the pack belongs to another model.
        RuntimeError: a process did not start.
    """
    quality = [read_quality(path) for path in settings.quality]
    bench = Comparison(config, settings)
    starts = bench.measure()
    report = make_report(bench.sizes, settings, starts)
    add_speeds(report, bench.sizes, starts)
    add_targets(report, bench.sizes, starts)
    if settings.running:
        add_streams(report, settings, bench.measure_running())
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    if not quality:
        report.publish(json, plot, lambda figure: draw(figure, report.title, starts))
    else:
        by_mode = dict(zip(bench.packs, quality, strict=True))
        report.more["quality"] = {
            mode: {str(stage): em for stage, em in each.items()} for mode, each in by_mode.items()
        }
        report.publish(json, plot, lambda figure: draw_quality(figure, report.title, starts, by_mode))


def add_speeds(report: Report, sizes: WeightSizes, starts: Sequence[ColdStart]) -> None:
    """Add the bytes per second, of what each mode needs, to the first token and to the whole model."""
    columns = (Column("first_bytes_s", "MB/s to token", 1e-6, 0), Column("full_bytes_s", "to whole", 1e-6, 0))
    report.columns = [*report.columns, *columns]
    for figure in report.figures:
        of_mode = [
            each
            for each in starts
            if (each.mode, describe_bandwidth(each.bandwidth)) == (figure["mode"], figure["bandwidth"])
        ]
        needed = sizes.first_bytes.get(figure["mode"], sizes.num_bytes)
        figure["first_bytes_s"] = summarise(needed / each.ttft_s for each in of_mode)
        figure["full_bytes_s"] = summarise(sizes.num_bytes / each.full_s for each in of_mode)


def add_targets(report: Report, sizes: WeightSizes, starts: Sequence[ColdStart]) -> None:
    """Add a column with the target of each staged start, and a note for each target kept or missed."""
    report.columns = [*report.columns, Column("gain_target", "target", scale=100, digits=1, unit=" %")]
    for bandwidth in dict.fromkeys(start.bandwidth for start in starts):
        at_once = [start.ttft_s for start in starts if (start.mode, start.bandwidth) == ("at-once", bandwidth)]
        name = describe_bandwidth(bandwidth)
        for figure in report.figures:
            if figure["mode"] not in sizes.first_bytes or figure["bandwidth"] != name or not at_once:
                continue
            where = f"{figure['mode']}, reads {name}"
            if bandwidth != math.inf:
                read_s = sizes.num_bytes / bandwidth
                target = _GAIN_SHARE * sizes.share_left_out(figure["mode"]) * read_s / statistics.median(at_once)
                figure["gain_target"] = target
                gain = figure["gain"]["median"]
                report.notes.append(
                    f"{where}: first token {gain:.1%} sooner, target {target:.1%}: {_kept(gain >= target)}."
                )
            ratio = figure["full_ratio"]["median"]
            report.notes.append(
                f"{where}: whole after {ratio:.3f} of at once, target {_MOST_FULL}: {_kept(ratio <= _MOST_FULL)}."
            )


def add_streams(report: Report, settings: ComparisonSettings, costs: Sequence[StreamCost]) -> None:
    """Add a row for the streams of each bandwidth."""
    report.columns = [
        *report.columns,
        Column("tpot_s", "TPOT ms", scale=1e3, digits=1),
        Column("tpot_ratio", "of alone", digits=3),
    ]
    for bandwidth in settings.storage_bandwidth:
        figure = _stream_figure([each for each in costs if each.bandwidth == bandwidth])
        report.figures.append(figure)
        where = f"{figure['mode']}, reads {figure['bandwidth']}"
        if figure["tpot_ratio"] is None:
            report.notes.append(
                f"{where}: the next stage came before the streams had made enough tokens; a pack of two stages or a "
                "lower bandwidth leaves more time."
            )
        else:
            ratio = figure["tpot_ratio"]["median"]
            report.notes.append(
                f"{where}: TPOT {ratio:.3f} of without loading, target {_MOST_TPOT}: {_kept(ratio <= _MOST_TPOT)}."
            )


def _stream_figure(costs: Sequence[StreamCost]) -> dict[str, Any]:
    pairs = [(each.tpot_s, each.alone_s) for each in costs]
    return {
        "bandwidth": describe_bandwidth(costs[0].bandwidth),
        "mode": f"staged, {costs[0].num_streams} streams",
        "full_s": summarise(each.full_s for each in costs),
        "tpot_s": summarise(loading for loading, _ in pairs if loading is not None),
        "alone_s": summarise(alone for _, alone in pairs if alone is not None),
        "tpot_ratio": summarise(
            loading / alone for loading, alone in pairs if loading is not None and alone is not None
        ),
    }


def _kept(is_kept: bool) -> str:
    return "kept" if is_kept else "missed"
