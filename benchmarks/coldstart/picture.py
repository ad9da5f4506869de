"""Picture of cold starts: bars up to the first token, by phase."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from quire.bench.coldstart.cold_start_report import PHASES, REST
from quire.bench.coldstart.coldstart import ColdStart, describe_bandwidth
from quire.bench.plots import COLOURS


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
    ttft_s = statistics.median(start.ttft_s for start in starts)
    full_s = statistics.median(start.full_s for start in starts)
    begin = 0.0
    for colour, phase in zip((*COLOURS, "0.5"), PHASES, strict=True):
        known = [start.phases[phase] for start in starts if phase in start.phases]
        length = min(statistics.median(known) if known else 0.0, ttft_s - begin)
        axes.barh(row, length, left=begin, height=0.5, color=colour, label=phase if is_first else None)
        begin += length
    axes.barh(row, ttft_s - begin, left=begin, height=0.5, color="0.8", label=REST if is_first else None)
    if full_s > ttft_s:
        axes.plot([ttft_s, full_s], [row, row], color="0.4", lw=1.5, label="full model" if is_first else None)
    axes.plot(full_s, row, "|", ms=10, color="0.2")
    axes.plot([start.ttft_s for start in starts], [row + 0.32] * len(starts), "o", ms=3, color="0.2", mew=0)
