"""Exact match of the answers against seconds since process start."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quire.bench.coldstart.coldstart import ColdStart, describe_bandwidth
from quire.bench.plots import COLOURS

_SERVED = ("bare", "map", "healed", "full")  #: kinds, from the one that serves where there is nothing better


def read_quality(path: Path) -> dict[int, float]:
    """The exact match, in percent, of each stage as served, from the output of `benchmarks.stage_quality`.

    Raises:
        ValueError: the file is something else.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["results"]
        found: dict[int, tuple[int, float]] = {}
        for row in rows:
            if row["kind"] in _SERVED:
                rank = _SERVED.index(row["kind"]), float(row["exact_match"])
                found[int(row["stage"])] = max(found.get(int(row["stage"]), (-1, 0.0)), rank)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no figures of `benchmarks.stage_quality --json`: {error}") from None
    if not found:
        raise ValueError(f"{path} holds no stage's exact match")
    return {stage: value for stage, (_, value) in sorted(found.items())}


def draw_quality(
    figure: Any, title: str, starts: Sequence[ColdStart], quality: Mapping[str, Mapping[int, float]]
) -> None:
    """A line per loading mode, a panel per bandwidth, from the medians of when each stage served. `quality` has the
    stages of each pack, all of which end with the same model."""
    whole = next(iter(quality.values()))
    bandwidths = list(dict.fromkeys(start.bandwidth for start in starts))
    panels = figure.subplots(len(bandwidths), 1, squeeze=False, sharey=True)[:, 0]
    figure.set_size_inches(8, 1.2 + 2.4 * len(bandwidths))
    figure.suptitle(
        f"{title}\nExact match of the answers, by seconds since process start: further left and higher is better",
        x=0.01,
        ha="left",
    )
    for axes, bandwidth in zip(panels, bandwidths, strict=True):
        of_bandwidth = [start for start in starts if start.bandwidth == bandwidth]
        end = 1.1 * max(start.full_s for start in of_bandwidth)
        for colour, mode in zip(COLOURS, dict.fromkeys(start.mode for start in of_bandwidth), strict=False):
            of_stage = quality.get(mode, whole)
            steps = when_each_serves([start for start in of_bandwidth if start.mode == mode], max(of_stage))
            times = [0.0, *steps.values(), end]
            values = [0.0, *(of_stage[stage] for stage in steps), of_stage[max(steps)]]
            axes.step(times, values, where="post", color=colour, label=mode)
        axes.set_xlim(0, end)
        axes.set_ylim(0, 100)
        axes.set_title(f"reads {describe_bandwidth(bandwidth)}")
        axes.set_ylabel("EM, %")
    panels[-1].set_xlabel("s")


def when_each_serves(starts: Sequence[ColdStart], last: int) -> dict[int, float]:
    """Median seconds until the first token of each stage; without stages, of the full model."""
    staged = [start for start in starts if len(start.stages) > 1]
    if not staged:
        return {last: statistics.median(start.ttft_s for start in starts)}
    times = {1: statistics.median(start.ttft_s for start in staged)}
    for stage in range(2, last + 1):
        seen = [start.full_s if stage == last else start.stages[stage] for start in staged if stage in start.stages]
        if seen:
            times[stage] = max(times[1], statistics.median(seen))
    return times
