"""Table and picture of cold starts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from quire.bench.bench_settings import ColdStartSettings
from quire.bench.coldstart.coldstart import ColdStart, WeightSizes, describe_bandwidth
from quire.bench.plots import COLOURS
from quire.bench.report import Column, Report, summarise
from quire.config import format_size

PHASES = ("imports", "config", "weights", "pool", "first step")  #: in the order of a start
_REST = "all else"  #: time to the first token outside of the phases, mostly the server's own start

COLUMNS = (
    Column("bandwidth", "reads"),
    Column("mode", "mode"),
    Column("ttft_s", "TTFT s"),
    Column("gain", "sooner", scale=100, digits=1, unit=" %"),
    Column("full_s", "whole s"),
    Column("full_ratio", "of at-once", digits=3),
    *(Column(f"phases.{phase}", f"{phase} s") for phase in (*PHASES, _REST)),
    Column("listening_s", "answers s"),
)


def make_report(sizes: WeightSizes, settings: ColdStartSettings, starts: Sequence[ColdStart]) -> Report:
    """One row for each mode and bandwidth; `Report.more` holds every start."""
    title = f"Cold start of {sizes.model}: {format_size(sizes.num_bytes)} of weights"
    report = Report("coldstart", title + (f" on {sizes.filesystem}" if sizes.filesystem else ""), COLUMNS)
    for bandwidth in settings.storage_bandwidth:
        here = [start for start in starts if start.bandwidth == bandwidth]
        at_once = [start for start in here if start.mode == "at-once"]
        for mode in settings.known_modes:
            if of_mode := [start for start in here if start.mode == mode]:
                report.figures.append(_figure(of_mode, at_once))
    report.columns = [column for column in COLUMNS if any(column.cell(each) != "–" for each in report.figures)]
    resident = max((start.resident for start in starts), default=0.0)
    report.notes = [
        f"Seconds since process start, median of {settings.runs} and range; the modes took turns. Up to "
        f"{resident:.1%} of the files' pages were in memory before a start"
        + (", as all of a tmpfs are." if sizes.filesystem == "tmpfs" else "."),
        "sooner: than at-once, in the same turn. whole: the full model serves. answers: the port, be it with 503.",
    ]
    if sizes.share_left_out:
        first = format_size(sizes.first_bytes)
        report.notes.append(f"The first stage needs {first}: {sizes.share_left_out:.1%} of the bytes are left out.")
    report.more = {
        "weights": {"bytes": sizes.num_bytes, "first_stage_bytes": sizes.first_bytes, "filesystem": sizes.filesystem},
        "starts": [_start_as_json(start) for start in starts],
    }
    return report


def _figure(starts: Sequence[ColdStart], at_once: Sequence[ColdStart]) -> dict[str, Any]:
    """One mode at one bandwidth. Ratios are within a turn."""
    mode = starts[0].mode
    phases = {phase: summarise(start.phases[phase] for start in starts if phase in start.phases) for phase in PHASES}
    figure: dict[str, Any] = {
        "bandwidth": describe_bandwidth(starts[0].bandwidth),
        "mode": mode,
        "ttft_s": summarise(start.ttft_s for start in starts),
        "full_s": summarise(start.full_s for start in starts),
        "phases": {**phases, _REST: summarise(start.rest_s for start in starts if start.phases)},
        "listening_s": summarise(start.listening_s for start in starts if start.listening_s is not None),
        "resident": max(start.resident for start in starts),
    }
    if at_once and mode != "at-once":
        pairs = list(zip(starts, at_once, strict=True))
        figure["gain"] = summarise(1 - start.ttft_s / other.ttft_s for start, other in pairs)
        figure["full_ratio"] = summarise(start.full_s / other.full_s for start, other in pairs)
    return figure


def _start_as_json(start: ColdStart) -> dict[str, Any]:
    return {
        "mode": start.mode,
        "bandwidth": None if start.bandwidth == math.inf else start.bandwidth,
        "ttft_s": start.ttft_s,
        "full_s": start.full_s,
        "phases": dict(start.phases),
        "resident": start.resident,
        "listening_s": start.listening_s,
        "stages": {str(stage): seconds for stage, seconds in start.stages.items()},
    }


def draw(figure: Any, title: str, starts: Sequence[ColdStart]) -> None:
    """A bar per mode up to its first token, by phase, and a line on to the full model; a panel per bandwidth."""
    bandwidths = list(dict.fromkeys(start.bandwidth for start in starts))
    modes = {bandwidth: _by_mode(starts, bandwidth) for bandwidth in bandwidths}
    heights = [len(modes[bandwidth]) + 1 for bandwidth in bandwidths]
    panels = figure.subplots(len(bandwidths), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    figure.set_size_inches(8, 1.5 + 0.35 * sum(heights))
    figure.suptitle(f"{title}\nSeconds from process start; shorter is better", x=0.01, ha="left")
    for axes, bandwidth in zip(panels, bandwidths, strict=True):
        names = list(modes[bandwidth])
        for row, (mode, of_mode) in zip(range(len(names), 0, -1), modes[bandwidth].items(), strict=True):
            _draw_mode(axes, row, of_mode, is_first=bandwidth == bandwidths[0] and mode == names[0])
        axes.set_yticks(range(len(names), 0, -1), names)
        axes.set_ylim(0.4, len(names) + 0.6)
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
        axes.set_title(f"reads {describe_bandwidth(bandwidth)}")
    panels[-1].set_xlabel("s")


def _by_mode(starts: Sequence[ColdStart], bandwidth: float) -> dict[str, list[ColdStart]]:
    found: dict[str, list[ColdStart]] = {}
    for start in sorted((start for start in starts if start.bandwidth == bandwidth), key=lambda each: each.mode):
        found.setdefault(start.mode, []).append(start)
    return found


def _draw_mode(axes: Any, row: int, starts: Sequence[ColdStart], *, is_first: bool) -> None:
    """Draw medians; time outside of all phases is grey and first. Points are the single starts' first tokens."""
    ttft_s = statistics.median(start.ttft_s for start in starts)
    full_s = statistics.median(start.full_s for start in starts)
    begin = max(0.0, statistics.median(start.rest_s for start in starts))  # a server starts before its engine does
    axes.barh(row, begin, height=0.5, color="0.8", label=_REST if is_first else None)
    for colour, phase in zip(COLOURS, PHASES, strict=False):
        known = [start.phases[phase] for start in starts if phase in start.phases]
        length = min(statistics.median(known) if known else 0.0, ttft_s - begin)
        axes.barh(row, length, left=begin, height=0.5, color=colour, label=phase if is_first else None)
        begin += length
    if full_s > ttft_s:
        axes.plot([ttft_s, full_s], [row, row], color="0.4", lw=1.5, label="full model" if is_first else None)
    axes.plot(full_s, row, "|", ms=10, color="0.2")
    axes.plot([start.ttft_s for start in starts], [row + 0.32] * len(starts), "o", ms=3, color="0.2", mew=0)
