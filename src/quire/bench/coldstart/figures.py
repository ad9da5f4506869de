"""What cold starts come to: a table, whether the marks are kept, and a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from quire.bench.coldstart.start import ColdStart, Running, WeightSizes, describe_bandwidth
from quire.bench.plots import COLOURS
from quire.bench.report import Column, Report, summarise
from quire.bench.settings import COLD_STARTS, ColdStartSettings
from quire.config import format_size

PHASES = ("imports", "config", "weights", "first step")  #: in the order of a start
_GAIN_SHARE = 0.95  #: of what leaving bytes out can gain at most
_MOST_FULL = 1.05  #: of at once: the time to the whole model
_MOST_TPOT = 1.10  #: of the same streams without loading

COLUMNS = (
    Column("bandwidth", "reads"),
    Column("mode", "way"),
    Column("ttft_s", "TTFT s"),
    Column("gain", "sooner", scale=100, digits=1, unit=" %"),
    Column("gain_mark", "mark", scale=100, digits=1, unit=" %"),
    Column("full_s", "whole s"),
    Column("full_ratio", "of at once", digits=3),
    *(Column(f"phases.{phase}", f"{phase} s") for phase in PHASES),
    Column("listening_s", "answers s"),
    Column("tpot_s", "TPOT ms", scale=1e3, digits=1),
    Column("tpot_ratio", "of alone", digits=3),
)


def make_report(
    sizes: WeightSizes, settings: ColdStartSettings, starts: Sequence[ColdStart], running: Sequence[Running]
) -> Report:
    report = Report(
        "coldstart",
        f"Cold start of {sizes.model}: {format_size(sizes.num_bytes)} of weights"
        + (f" on {sizes.filesystem}" if sizes.filesystem else ""),
        COLUMNS,
    )
    for bandwidth in settings.storage_bandwidth:
        here = [start for start in starts if start.bandwidth == bandwidth]
        for mode in COLD_STARTS:
            if of_mode := [start for start in here if start.mode == mode]:
                at_once = [start for start in here if start.mode == "at-once"]
                report.figures.append(_figure(sizes, of_mode, at_once))
        if streams := [each for each in running if each.bandwidth == bandwidth]:
            report.figures.append(_running_figure(streams))
    report.columns = [column for column in COLUMNS if any(column.cell(each) != "–" for each in report.figures)]
    resident = max((start.resident for start in starts), default=0.0)
    report.notes.append(
        f"Seconds since the process was started, medians of {settings.runs} and their range; the ways took turns. "
        f"Up to {resident:.1%} of the files' pages were in memory before a start"
        + (", as all of a tmpfs are." if sizes.filesystem == "tmpfs" else ".")
    )
    report.notes.append(
        "sooner: than at once, of the same turn. whole: all of the model serves. answers: the port, be it with 503."
    )
    if sizes.share_left_out:
        report.notes.append(
            f"The first stage needs {format_size(sizes.first_bytes)}; {sizes.share_left_out:.1%} of the bytes are "
            f"left out. mark: {_GAIN_SHARE} of that share, times the seconds that all bytes take at this bandwidth, "
            "over the TTFT at once."
        )
    report.notes += [note for figure in report.figures for note in _judge(figure)]
    report.more = {
        "weights": {"bytes": sizes.num_bytes, "first_stage_bytes": sizes.first_bytes, "filesystem": sizes.filesystem},
        "starts": [_start_as_json(start) for start in starts],
    }
    return report


def _figure(sizes: WeightSizes, starts: Sequence[ColdStart], at_once: Sequence[ColdStart]) -> dict[str, Any]:
    """One way at one bandwidth. Ratios are of the same turn."""
    bandwidth, mode = starts[0].bandwidth, starts[0].mode
    figure: dict[str, Any] = {
        "bandwidth": describe_bandwidth(bandwidth),
        "mode": mode,
        "ttft_s": summarise(start.ttft_s for start in starts),
        "full_s": summarise(start.full_s for start in starts),
        "phases": {
            phase: summarise(start.phases[phase] for start in starts if phase in start.phases) for phase in PHASES
        },
        "listening_s": summarise(start.listening_s for start in starts if start.listening_s is not None),
        "resident": max(start.resident for start in starts),
    }
    if at_once and mode != "at-once":
        pairs = list(zip(starts, at_once, strict=True))
        figure["gain"] = summarise(1 - start.ttft_s / other.ttft_s for start, other in pairs)
        figure["full_ratio"] = summarise(start.full_s / other.full_s for start, other in pairs)
    if at_once and mode == "staged" and bandwidth != math.inf:
        ttft_s = statistics.median(start.ttft_s for start in at_once)
        figure["gain_mark"] = _GAIN_SHARE * sizes.share_left_out * sizes.num_bytes / bandwidth / ttft_s
    return figure


def _running_figure(running: Sequence[Running]) -> dict[str, Any]:
    pairs = [(each.tpot_s, each.alone_s) for each in running]
    return {
        "bandwidth": describe_bandwidth(running[0].bandwidth),
        "mode": f"staged, {running[0].num_streams} streams",
        "full_s": summarise(each.full_s for each in running),
        "tpot_s": summarise(loading for loading, _ in pairs if loading is not None),
        "alone_s": summarise(alone for _, alone in pairs if alone is not None),
        "tpot_ratio": summarise(
            loading / alone for loading, alone in pairs if loading is not None and alone is not None
        ),
    }


def _judge(figure: dict[str, Any]) -> list[str]:
    """Which marks a figure keeps, by its medians."""
    where = f"{figure['mode']}, reads {figure['bandwidth']}"
    notes = []
    if (mark := figure.get("gain_mark")) is not None:
        gain = figure["gain"]["median"]
        notes.append(f"{where}: the first token came {gain:.1%} sooner, mark {mark:.1%}: {_kept(gain >= mark)}.")
    if figure["mode"] == "staged" and figure.get("full_ratio") is not None:
        ratio = figure["full_ratio"]["median"]
        notes.append(f"{where}: whole after {ratio:.3f} of at once, mark {_MOST_FULL}: {_kept(ratio <= _MOST_FULL)}.")
    if figure.get("tpot_ratio") is not None:
        ratio = figure["tpot_ratio"]["median"]
        notes.append(f"{where}: TPOT {ratio:.3f} of without loading, mark {_MOST_TPOT}: {_kept(ratio <= _MOST_TPOT)}.")
    elif "tpot_ratio" in figure:
        notes.append(f"{where}: the next stage came before the streams had made enough tokens to tell.")
    return notes


def _kept(is_kept: bool) -> str:
    return "kept" if is_kept else "missed"


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
    """A bar a way up to its first token, by phase, and a line on to the whole model; a panel a bandwidth."""
    bandwidths = list(dict.fromkeys(start.bandwidth for start in starts))
    ways = {bandwidth: _by_mode(starts, bandwidth) for bandwidth in bandwidths}
    heights = [len(ways[bandwidth]) + 1 for bandwidth in bandwidths]
    panels = figure.subplots(len(bandwidths), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    figure.set_size_inches(8, 1.5 + 0.35 * sum(heights))
    figure.suptitle(f"{title}\nSeconds from process start; shorter is better", x=0.01, ha="left")
    for axes, bandwidth in zip(panels, bandwidths, strict=True):
        names = list(ways[bandwidth])
        for place, (mode, of_mode) in zip(range(len(names), 0, -1), ways[bandwidth].items(), strict=True):
            _draw_way(axes, place, of_mode, is_first=bandwidth == bandwidths[0] and mode == names[0])
        axes.set_yticks(range(len(names), 0, -1), names)
        axes.set_ylim(0.4, len(names) + 0.6)
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
        axes.set_title(f"reads {describe_bandwidth(bandwidth)}")
    panels[-1].set_xlabel("s")


def _by_mode(starts: Sequence[ColdStart], bandwidth: float) -> dict[str, list[ColdStart]]:
    found: dict[str, list[ColdStart]] = {}
    for mode in COLD_STARTS:
        if of_mode := [start for start in starts if (start.mode, start.bandwidth) == (mode, bandwidth)]:
            found[mode] = of_mode
    return found


def _draw_way(axes: Any, place: int, starts: Sequence[ColdStart], *, is_first: bool) -> None:
    """Medians; what no phase accounts for is grey. The single starts' first tokens are points."""
    ttft_s = statistics.median(start.ttft_s for start in starts)
    full_s = statistics.median(start.full_s for start in starts)
    begin = 0.0
    for colour, phase in zip(COLOURS, PHASES, strict=False):
        known = [start.phases[phase] for start in starts if phase in start.phases]
        length = min(statistics.median(known) if known else 0.0, ttft_s - begin)
        axes.barh(place, length, left=begin, height=0.5, color=colour, label=phase if is_first else None)
        begin += length
    axes.barh(place, ttft_s - begin, left=begin, height=0.5, color="0.8", label="all else" if is_first else None)
    if full_s > ttft_s:
        axes.plot([ttft_s, full_s], [place, place], color="0.4", lw=1.5, label="whole model" if is_first else None)
    axes.plot(full_s, place, "|", ms=10, color="0.2")
    axes.plot([start.ttft_s for start in starts], [place + 0.32] * len(starts), "o", ms=3, color="0.2", mew=0)
