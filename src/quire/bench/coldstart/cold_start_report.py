"""Table of cold starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quire.bench.bench_settings import ColdStartSettings
from quire.bench.coldstart.coldstart import ColdStart, ColdStartBench, WeightSizes, describe_bandwidth
from quire.bench.report import Column, Report, summarise
from quire.config import EngineConfig, format_size

#: In the order of a start.
PHASES = ("spawn", "imports", "config", "tokenizer", "kernels", "weights", "pool", "first step")
REST = "all else"  #: time to the first token outside of the phases: the request, through server and tokenizer

COLUMNS = (
    Column("bandwidth", "reads"),
    Column("mode", "mode"),
    Column("ttft_s", "TTFT s"),
    Column("gain", "sooner", scale=100, digits=1, unit=" %"),
    Column("full_s", "whole s"),
    Column("full_ratio", "of at-once", digits=3),
    *(Column(f"phases.{phase}", f"{phase} s") for phase in (*PHASES, REST)),
    Column("listening_s", "answers s"),
)


def run(config: EngineConfig, settings: ColdStartSettings, json: Path | None) -> None:
    """Measure and publish the table. ValueError for a wrong model or pack, RuntimeError if no server started."""
    bench = ColdStartBench(config, settings)
    starts = bench.measure()
    report = make_report(bench.sizes, settings, starts)
    report.settings = {**settings.as_json(), "engine": config.as_json()}
    report.publish(json)


def make_report(sizes: WeightSizes, settings: ColdStartSettings, starts: Sequence[ColdStart]) -> Report:
    """One row for each mode and bandwidth; `Report.more` holds every start."""
    title = f"Cold start of {sizes.model}: {format_size(sizes.num_bytes)} of weights"
    report = Report("coldstart", title + (f" on {sizes.filesystem}" if sizes.filesystem else ""), COLUMNS)
    kinds = starts_by_kind(starts, settings.storage_bandwidth)
    report.figures = [_figure(of_mode, at_once) for of_mode, at_once in kinds]
    report.columns = [column for column in COLUMNS if any(column.cell(each) != "–" for each in report.figures)]
    resident = max((start.resident for start in starts), default=0.0)
    report.notes = [
        f"Seconds since process start, median of {settings.runs} and range; the modes took turns. Up to "
        f"{resident:.1%} of the files' pages were in memory before a start"
        + (", as all of a tmpfs are." if sizes.filesystem == "tmpfs" else "."),
        "sooner: than at-once, in the same turn. whole: the full model serves. answers: the port, be it with 503.",
    ]
    for mode, first in sizes.first_bytes.items():
        left_out = f"{sizes.share_left_out(mode):.1%} of the bytes are left out"
        report.notes.append(f"{mode}: the first stage needs {format_size(first)}; {left_out}.")
    report.more = {
        "weights": {
            "bytes": sizes.num_bytes,
            "first_stage_bytes": dict(sizes.first_bytes),
            "filesystem": sizes.filesystem,
        },
        "starts": [{**asdict(start), "bandwidth": describe_bandwidth(start.bandwidth)} for start in starts],
    }
    return report


def starts_by_kind(
    starts: Sequence[ColdStart], bandwidths: Sequence[float]
) -> Iterator[tuple[list[ColdStart], list[ColdStart]]]:
    """Yield the starts of each bandwidth and mode that was measured, and those at once at the same bandwidth."""
    for bandwidth in bandwidths:
        here = [start for start in starts if start.bandwidth == bandwidth]
        at_once = [start for start in here if start.mode == "at-once"]
        for mode in dict.fromkeys(start.mode for start in here):
            yield [start for start in here if start.mode == mode], at_once


def _figure(starts: Sequence[ColdStart], at_once: Sequence[ColdStart]) -> dict[str, Any]:
    """One mode at one bandwidth. Ratios are within a turn."""
    mode = starts[0].mode
    phases = {phase: summarise(start.phases[phase] for start in starts if phase in start.phases) for phase in PHASES}
    figure: dict[str, Any] = {
        "bandwidth": describe_bandwidth(starts[0].bandwidth),
        "mode": mode,
        "ttft_s": summarise(start.ttft_s for start in starts),
        "full_s": summarise(start.full_s for start in starts),
        "phases": {**phases, REST: summarise(start.rest_s for start in starts if start.phases)},
        "listening_s": summarise(start.listening_s for start in starts if start.listening_s is not None),
        "resident": max(start.resident for start in starts),
    }
    if at_once and mode != "at-once":
        pairs = list(zip(starts, at_once, strict=True))
        figure["gain"] = summarise(1 - start.ttft_s / other.ttft_s for start, other in pairs)
        figure["full_ratio"] = summarise(start.full_s / other.full_s for start, other in pairs)
    return figure
